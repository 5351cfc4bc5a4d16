// SPDX-License-Identifier: Apache-2.0
#include "common/base/byte_size.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ParseBytes, KnowsBothKindsOfUnitsInAnyCase) {
  EXPECT_EQ(*ParseBytes("1073741824"), 1u << 30);
  EXPECT_EQ(*ParseBytes("1.5 GiB"), 3u << 29);
  EXPECT_EQ(*ParseBytes("1.5gib"), 3u << 29);
  EXPECT_EQ(*ParseBytes("2GB"), 2'000'000'000u);
  EXPECT_EQ(*ParseBytes("0"), 0u);
}

TEST(ParseBytes, QuotesWhatItDoesNotUnderstand) {
  for (const char* bad :
       {"", "GiB", "-1", "1 parsec", "1e300GiB", "1e30TiB", "nan", "inf", "12 apples"}) {
    const auto parsed = ParseBytes(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_NE(std::string(parsed.status().message()).find(bad), std::string::npos);
  }
}

}  // namespace
}  // namespace baton
