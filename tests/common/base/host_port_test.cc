// SPDX-License-Identifier: Apache-2.0
#include "common/base/host_port.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(SplitHostPort, CutsAtTheLastColonAndDropsBrackets) {
  const struct {
    const char *text, *host, *port;
  } cases[] = {{"127.0.0.1:80", "127.0.0.1", "80"},
               {"[::1]:0", "::1", "0"},
               {"::1:5", "::1", "5"},
               {":80", "", "80"},
               {"a:", "a", ""},
               {"[]:1", "[]", "1"}};
  for (const auto& c : cases) {
    const auto parts = SplitHostPort(c.text);
    ASSERT_TRUE(parts.has_value()) << c.text;
    EXPECT_EQ(parts->host, c.host);
    EXPECT_EQ(parts->port, c.port);
  }
  EXPECT_FALSE(SplitHostPort("localhost").has_value());
  EXPECT_FALSE(SplitHostPort("").has_value());
}

}  // namespace
}  // namespace baton
