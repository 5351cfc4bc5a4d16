// SPDX-License-Identifier: Apache-2.0
// A prefill and a decode worker on one GPU, emulated or $BATON_TEST_DEVICE: the
// reference answers through both, and kill -9 of either.
#include <gtest/gtest.h>

#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/integration/requests.h"
#include "tests/testing/test_data.h"

namespace baton::testing {
namespace {

std::unique_ptr<Cluster> StartPair() {
  ClusterOptions options;
  options.model = "embedded";
  options.worker_flags = {"--device",    TestDevice(), "--threads",      "1",
                          "--kv-tokens", "4096",       "--chunk-tokens", "64"};
  return Cluster::Start(options);
}

TEST(GpuPair, GivesTheReferenceAnswers) {
  std::ifstream file(TestData("own-glm/golden.json"));
  const auto cases = nlohmann::json::parse(file)["cases"];
  ASSERT_GT(cases.size(), 5u);
  const auto cluster = StartPair();
  ASSERT_NE(cluster, nullptr);
  std::vector<std::unique_ptr<Running>> running;
  for (const auto& one : cases) {
    running.push_back(std::make_unique<Running>(
        cluster->client(),
        MakeRequest(one["prompt_ids"].get<std::vector<uint32_t>>(),
                    static_cast<uint32_t>(one["greedy_ids"].size()), Path::kSplit)));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const Result result = running[i]->Get();
    ASSERT_TRUE(result.status.ok()) << result.status.message << cluster->Logs();
    EXPECT_FALSE(result.prefill_worker.empty());
    EXPECT_EQ(result.token_ids, cases[i]["greedy_ids"].get<std::vector<uint32_t>>())
        << cases[i]["text"];
  }
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

class GpuPairKillTest : public ::testing::TestWithParam<const char*> {};

// What runs while a worker dies ends soon; a new one serves with the same tokens.
TEST_P(GpuPairKillTest, SurvivorIsCleanAndNewWorkerGivesTheSameTokens) {
  const std::string victim = GetParam();
  const auto cluster = StartPair();
  ASSERT_NE(cluster, nullptr);
  const auto request = [](uint32_t seed, uint32_t tokens) {
    std::vector<uint32_t> prompt = RandomPrompt(90, seed);
    for (uint32_t& id : prompt) id = 3 + id % 600;  // of the embedded model's 671
    Request made = MakeRequest(std::move(prompt), tokens, Path::kSplit);
    made.deadline = std::chrono::seconds(60);
    return made;
  };
  const Result before = Running(cluster->client(), request(1, 8)).Get();
  ASSERT_TRUE(before.status.ok()) << before.status.message << cluster->Logs();
  Running cut(cluster->client(), request(2, 400));
  ASSERT_TRUE(Eventually([&] { return cut.tokens() > 3 || cut.done(); })) << cluster->Logs();
  const auto killed = std::chrono::steady_clock::now();
  cluster->KillWorker(victim);
  const Result result = cut.Get();
  if (victim.starts_with("prefill")) {  // the baton was passed
    EXPECT_TRUE(result.status.ok()) << result.status.message;
  } else {
    EXPECT_EQ(result.status.code, StatusCode::kUnavailable) << result.status.message;
    EXPECT_LT(cut.ended() - killed, std::chrono::seconds(1));
  }
  EXPECT_TRUE(cluster->AwaitWorker(victim, false));
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe() << cluster->Logs();
  ASSERT_TRUE(cluster->StartWorker(victim));
  ASSERT_TRUE(cluster->AwaitWorker(victim)) << cluster->Logs();
  const Result after = Running(cluster->client(), request(1, 8)).Get();
  EXPECT_TRUE(after.status.ok()) << after.status.message << cluster->Logs();
  EXPECT_EQ(after.token_ids, before.token_ids);
}

INSTANTIATE_TEST_SUITE_P(Either, GpuPairKillTest, ::testing::Values("prefill-1", "decode-1"),
                         [](const auto& instance) {
                           return std::string(instance.param[0] == 'p' ? "Prefill" : "Decode");
                         });

}  // namespace
}  // namespace baton::testing
