// SPDX-License-Identifier: Apache-2.0
#include "common/worker/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"

namespace baton::worker {
namespace {

using nlohmann::json;

class ProfileTest : public ::testing::Test {
 protected:
  ~ProfileTest() override { std::filesystem::remove(path_); }

  json Events() const { return json::parse(std::ifstream(path_)); }
  // Those of a category, without the lines that only name things.
  std::vector<json> Of(const std::string& category) const {
    std::vector<json> events;
    for (const json& event : Events()) {
      if (event.value("cat", "") == category) events.push_back(event);
    }
    return events;
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / ("baton-profile-" + std::to_string(getpid()));
  const absl::Time start_ = absl::Now();
};

TEST_F(ProfileTest, StepsHaveTheirTimesAndParts) {
  auto profile = Profile::Create(path_, "decode \"worker\"");
  ASSERT_TRUE(profile.ok()) << profile.status();
  (*profile)->parts()->Begin();
  absl::SleepFor(absl::Milliseconds(2));
  (*profile)->parts()->Mark(model::StepPart::kAttention);
  (*profile)->AddStep({start_, start_ + absl::Milliseconds(5), 3, 0, 0});
  (*profile)->AddStep({start_, start_ + absl::Milliseconds(9), 1, 40, 2});
  profile->reset();

  EXPECT_EQ(Events()[0]["args"]["name"], "decode \"worker\"");
  const std::vector<json> steps = Of("step");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["name"], "decode");
  EXPECT_NEAR(steps[0]["dur"], 5000, 0.2);
  EXPECT_NEAR(steps[0]["ts"], absl::ToUnixMicros(start_), 2);
  EXPECT_EQ(steps[0]["args"]["decode rows"], 3);
  EXPECT_GE(steps[0]["args"]["attention ms"], 2);
  EXPECT_EQ(steps[1]["name"], "mixed");
  EXPECT_EQ(steps[1]["args"]["prompt tokens"], 40);
  EXPECT_FALSE(steps[1]["args"].contains("attention ms")) << "that was the step before";
}

TEST_F(ProfileTest, SequencesAndHandOffsAreSpans) {
  auto profile = Profile::Create(path_, "prefill");
  ASSERT_TRUE(profile.ok()) << profile.status();
  engine::StepOutput begin, end;
  begin.started.push_back({{1, 7}, start_, 0});
  engine::TokenOutput& token = begin.tokens.emplace_back();
  token.ref = {1, 7};
  token.prefill_end = start_ + absl::Milliseconds(1);
  engine::EndOutput& handed = end.ends.emplace_back();
  handed.ref = {1, 7};
  handed.handed_off = true;
  handed.transport = "shm";
  handed.handoff_bytes = 99;
  engine::EndOutput& never = end.ends.emplace_back();
  never.ref = {1, 8};
  never.status = absl::CancelledError("never began");
  (*profile)->Add(begin);
  (*profile)->Add(end);
  profile->reset();

  const std::vector<json> sequence = Of("sequence"), handoff = Of("hand-off");
  ASSERT_EQ(sequence.size(), 2u) << "one that never began has no span";
  EXPECT_EQ(sequence[0]["ph"], "b");
  EXPECT_EQ(sequence[1]["ph"], "e");
  EXPECT_EQ(sequence[0]["id"], sequence[1]["id"]);
  EXPECT_EQ(sequence[0]["args"]["tokens"], 1);
  ASSERT_EQ(handoff.size(), 2u);
  EXPECT_EQ(handoff[0]["args"]["bytes"], 99);
  EXPECT_EQ(handoff[0]["args"]["transport"], "shm");
  EXPECT_NEAR(handoff[0]["ts"], absl::ToUnixMicros(start_) + 1000, 2);
}

TEST_F(ProfileTest, IsBoundedAndOfAKilledWorkerStillReadable) {
  auto profile = Profile::Create(path_, "decode", 10);
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (int i = 0; i < 100; ++i) (*profile)->AddStep({start_, start_, 1, 0, 0});
  profile->reset();
  EXPECT_EQ(Of("step").size(), 10u);

  std::ifstream file(path_);
  std::string whole{std::istreambuf_iterator<char>(file), {}};
  whole.erase(whole.rfind(']'));
  EXPECT_TRUE(json::accept(whole + "]")) << "only the end is missing";
}

TEST_F(ProfileTest, FileThatCannotBeWrittenIsRefusedWithItsFlag) {
  const auto profile = Profile::Create("/nowhere/trace.json", "decode");
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(profile.status().message()),
              ::testing::AllOf(::testing::HasSubstr("--profile"),
                               ::testing::HasSubstr("/nowhere/trace.json")));
}

}  // namespace
}  // namespace baton::worker
