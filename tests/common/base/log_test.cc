// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton {
namespace {

TEST(Log, WritesOneJsonObjectPerLineWithTypedFields) {
  ::testing::internal::CaptureStderr();
  LogWarning("KV pool is full", {{"blocks", 12u}, {"share", 0.5}, {"fatal", false}, {"who", "D1"}});
  const std::string text = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(text.back(), '\n');
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["message"], "KV pool is full");
  EXPECT_EQ(line["blocks"], 12);
  EXPECT_EQ(line["share"], 0.5);
  EXPECT_EQ(line["fatal"], false);
  EXPECT_EQ(line["who"], "D1");
}

TEST(Log, SurvivesInvalidUtf8AndLineBreaks) {
  ::testing::internal::CaptureStderr();
  LogError("bad\xFF\n", {{"value", std::string("x\xC0\n")}});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(nlohmann::json::parse(text)["message"], "bad\uFFFD\n");
}

TEST(Log, DropsLinesBelowTheLevel) {
  ::testing::internal::CaptureStderr();
  SetLogLevel(LogLevel::kError);
  LogWarning("not seen");
  SetLogLevel(LogLevel::kInfo);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace baton
