// SPDX-License-Identifier: Apache-2.0
// KV types on a real model: equal ones give the same tokens on both paths,
// mixed ones the same tokens every time.
#include <gtest/gtest.h>

#include "tests/integration/requests.h"

namespace baton::testing {
namespace {

// Greedy and sampled, below and above a chunk, ragged in their last block.
std::vector<Request> Requests(Path path) {
  std::vector<Request> requests;
  for (const uint32_t length : {1u, 33u, 64u, 150u, 300u}) {
    std::vector<uint32_t> prompt = RandomPrompt(length, length);
    for (uint32_t& id : prompt) id = 3 + id % 600;  // of the embedded model's 671
    requests.push_back(MakeRequest(std::move(prompt), 40, path));
    if (length % 2 == 1) continue;
    requests.back().temperature = 0.9f;
    requests.back().seed = length;
  }
  return requests;
}

ClusterOptions RealModel(const std::string& prefill_kv, const std::string& decode_kv) {
  ClusterOptions options;
  options.model = "embedded";
  options.worker_flags = {"--chunk-tokens", "64", "--threads", "1"};
  options.prefill_flags = {"--kv-dtype", prefill_kv};
  options.decode_flags = {"--kv-dtype", decode_kv};
  return options;
}

// All at once, so that batches differ from run to run.
std::vector<std::vector<uint32_t>> Answers(Cluster& cluster, Path path) {
  std::vector<std::unique_ptr<Running>> running;
  for (const Request& request : Requests(path)) {
    running.push_back(std::make_unique<Running>(cluster.client(), request));
  }
  std::vector<std::vector<uint32_t>> answers;
  for (const auto& one : running) {
    const Result result = one->Get();
    EXPECT_TRUE(result.status.ok()) << result.status.message << cluster.Logs();
    EXPECT_EQ(result.prefill_worker.empty(), path == Path::kLocal);
    EXPECT_EQ(result.token_ids.size(), 40u);
    answers.push_back(result.token_ids);
  }
  return answers;
}

TEST(KvTypes, EqualOnesGiveTheSameTokensSplitAndLocal) {
  for (const char* type : {"int8", "f32"}) {
    const auto cluster = Cluster::Start(RealModel(type, type));
    ASSERT_NE(cluster, nullptr);
    EXPECT_EQ(Answers(*cluster, Path::kSplit), Answers(*cluster, Path::kLocal)) << type;
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

struct Mix {
  const char *name, *prefill, *decode, *wire;
};
class MixedKvTest : public ::testing::TestWithParam<Mix> {};

INSTANTIATE_TEST_SUITE_P(All, MixedKvTest,
                         ::testing::Values(Mix{"bf16_to_int8", "bf16", "int8", "same"},
                                           Mix{"int8_to_bf16", "int8", "bf16", "same"},
                                           Mix{"f32_to_int8", "f32", "int8", "same"},
                                           Mix{"bf16_over_int8", "bf16", "bf16", "int8"}),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(MixedKvTest, GivesTheSameTokensEveryTimeAndOnBothTransports) {
  std::vector<std::vector<uint32_t>> first;
  for (const char* transport : {"shm", "tcp"}) {
    ClusterOptions options = RealModel(GetParam().prefill, GetParam().decode);
    options.prefill_flags.insert(options.prefill_flags.end(),
                                 {"--kv-wire", GetParam().wire, "--transport", transport});
    const auto cluster = Cluster::Start(options);
    ASSERT_NE(cluster, nullptr);
    for (int round = 0; round < 2; ++round) {
      const auto answers = Answers(*cluster, Path::kSplit);
      if (first.empty()) first = answers;
      EXPECT_EQ(answers, first) << transport << ", round " << round;
    }
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

// Kernels of two kinds differ in more than how KV is stored.
TEST(KvTypes, OtherPrecisionsAreNotPaired) {
  ClusterOptions options = RealModel("bf16", "int8");
  options.prefill_flags.insert(options.prefill_flags.end(), {"--precision", "exact"});
  const auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Request request = Requests(Path::kSplit).front();
  const Result split = cluster->client().Generate(request);
  EXPECT_FALSE(split.status.ok());
  EXPECT_NE(split.status.message.find("precision"), std::string::npos) << split.status.message;
}

}  // namespace
}  // namespace baton::testing
