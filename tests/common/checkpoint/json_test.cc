// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

TEST(Json, RefusesDoubleKeysAtAnyDepthButNotInNeighbours) {
  EXPECT_TRUE(ParseJsonObject(R"({"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":2}]})", "f").ok());
  EXPECT_FALSE(ParseJsonObject(R"({"a":[{"x":1,"y":{"x":1},"x":2}]})", "f").ok());
}

TEST(Json, RefusesMoreValuesThanACheckpointNeeds) {
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 4'000'000; ++i) many += ",0";
  EXPECT_THAT(std::string(ParseJsonObject(many + "]}", "f").status().message()),
              HasSubstr("too many values"));
}

TEST(Json, RefusesNumbersBeyondDouble) {
  EXPECT_FALSE(ParseJsonObject(R"({"a":1e999})", "f").ok());
}

TEST(JsonFields, ErrorsNameSourceFieldAndRange) {
  const auto json = ParseJsonObject(R"({"n":70000,"s":"x","neg":-1,"f":1.5,"nothing":null})", "f");
  ASSERT_TRUE(json.ok());
  const JsonFields fields(*json, "config.json");
  EXPECT_EQ(fields.Uint("n", 1, 70'000).value(), 70'000u);
  EXPECT_EQ(fields.Uint("nothing", 1, 9, 5).value(), 5u);
  EXPECT_THAT(std::string(fields.Uint("n", 1, 69'999).status().message()),
              ::testing::AllOf(HasSubstr("config.json"), HasSubstr("\"n\""), HasSubstr("69999")));
  for (const char* key : {"s", "neg", "f", "absent"}) {
    EXPECT_FALSE(fields.Uint(key, 0, 9).ok()) << key;
  }
  EXPECT_FALSE(fields.Bool("n", false).ok());
  EXPECT_FALSE(fields.String("n", "").ok());
  EXPECT_FALSE(fields.Number("s", 1.0).ok());
}

}  // namespace
}  // namespace baton::checkpoint
