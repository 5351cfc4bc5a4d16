// SPDX-License-Identifier: Apache-2.0
#include "common/config/nearest.h"

#include <gtest/gtest.h>

namespace baton::config {
namespace {

TEST(Nearest, FindsTheTypoAndNothingForAStranger) {
  const std::vector<std::string> names = {"max-tokens", "max-queue", "temperature", "seed"};
  EXPECT_EQ(Nearest("max-token", names), "max-tokens");
  EXPECT_EQ(Nearest("temprature", names), "temperature");
  EXPECT_EQ(Nearest("max_tokens", names), "max-tokens");
  EXPECT_EQ(Nearest("sede", names), "seed");
  EXPECT_EQ(Nearest("verbosity", names), "");
  EXPECT_EQ(Nearest("", names), "");
}

}  // namespace
}  // namespace baton::config
