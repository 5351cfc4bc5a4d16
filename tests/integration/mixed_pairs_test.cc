// SPDX-License-Identifier: Apache-2.0
// --mixed-pairs: a CPU prefill worker feeds a GPU decode worker (emulated) and the
// reverse: the same tokens every time, near those of the decode worker alone.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/integration/requests.h"
#include "tests/testing/test_data.h"

namespace baton::testing {
namespace {

constexpr uint32_t kTokens = 12;

// Greedy but for one, ragged in their blocks, one beyond a segment of 256.
std::vector<Request> Requests(Path path) {
  std::vector<Request> requests;
  for (const uint32_t length : {33u, 64u, 150u, 260u}) {
    std::vector<uint32_t> prompt = RandomPrompt(length, length);
    for (uint32_t& id : prompt) id = 3 + id % 600;  // of the embedded model's 671
    requests.push_back(MakeRequest(std::move(prompt), kTokens, path));
    requests.back().deadline = std::chrono::seconds(60);
    requests.back().logprobs = 0;
    if (length != 64) continue;
    requests.back().temperature = 0.9f;
    requests.back().seed = length;
  }
  return requests;
}

struct Direction {
  const char *name, *prefill_kv, *decode_kv;
  bool gpu_decodes;
};

ClusterOptions Options(const Direction& direction) {
  ClusterOptions options;
  options.model = "embedded";
  options.router_flags = {"--mixed-pairs", "on"};
  options.worker_flags = {"--threads", "1", "--chunk-tokens", "64"};
  options.prefill_flags = {"--kv-dtype", direction.prefill_kv};
  options.decode_flags = {"--kv-dtype", direction.decode_kv};
  auto& on_gpu = direction.gpu_decodes ? options.decode_flags : options.prefill_flags;
  on_gpu.insert(on_gpu.end(), {"--device", TestDevice()});
  return options;
}

std::vector<Result> Answers(Cluster& cluster, Path path) {
  std::vector<std::unique_ptr<Running>> running;
  for (const Request& request : Requests(path)) {
    running.push_back(std::make_unique<Running>(cluster.client(), request));
  }
  std::vector<Result> answers;
  for (const auto& one : running) {
    answers.push_back(one->Get());
    const Result& result = answers.back();
    EXPECT_TRUE(result.status.ok()) << result.status.message << cluster.Logs();
    EXPECT_EQ(result.prefill_worker.empty(), path == Path::kLocal);
    EXPECT_EQ(result.foreign_kv, path == Path::kSplit);
  }
  return answers;
}

std::vector<std::vector<uint32_t>> Tokens(const std::vector<Result>& answers) {
  std::vector<std::vector<uint32_t>> tokens;
  for (const Result& answer : answers) tokens.push_back(answer.token_ids);
  return tokens;
}

// Tokens of both up to the first that differs, and how far their log-probabilities
// lie apart there at most. A token that differs is one that was about as probable.
struct Agreement {
  size_t equal = 0, all = 0;
  float apart = 0;
};

Agreement Compare(const std::vector<Result>& mixed, const std::vector<Result>& alone) {
  Agreement agreement;
  for (size_t i = 0; i < mixed.size(); ++i) {
    agreement.all += alone[i].token_ids.size();
    for (size_t t = 0; t < alone[i].token_ids.size(); ++t) {
      const float apart =
          std::abs(mixed[i].logprobs.at(t).logprob - alone[i].logprobs.at(t).logprob);
      if (mixed[i].token_ids.at(t) != alone[i].token_ids[t]) break;
      agreement.apart = std::max(agreement.apart, apart);
      ++agreement.equal;
    }
  }
  return agreement;
}

class MixedPairsTest : public ::testing::TestWithParam<Direction> {};

INSTANTIATE_TEST_SUITE_P(All, MixedPairsTest,
                         ::testing::Values(Direction{"CpuFeedsGpu", "bf16", "bf16", true},
                                           Direction{"GpuFeedsCpu", "bf16", "bf16", false},
                                           Direction{"CpuFeedsGpuInt8", "bf16", "int8", true}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(MixedPairsTest, GivesTheSameTokensEveryTimeNearThoseOfTheDecodeWorkerAlone) {
  std::vector<std::vector<uint32_t>> first;
  for (const char* transport : {"shm", "tcp"}) {
    ClusterOptions options = Options(GetParam());
    options.worker_flags.insert(options.worker_flags.end(), {"--transport", transport});
    const auto cluster = Cluster::Start(options);
    ASSERT_NE(cluster, nullptr);
    const auto alone = Answers(*cluster, Path::kLocal);
    const auto mixed = Answers(*cluster, Path::kSplit);
    if (first.empty()) first = Tokens(mixed);
    EXPECT_EQ(Tokens(mixed), first) << transport;
    EXPECT_EQ(Tokens(Answers(*cluster, Path::kSplit)), first) << transport << ", again";
    const Agreement agreement = Compare(mixed, alone);
    EXPECT_GE(agreement.equal * 100, agreement.all * 75)
        << agreement.equal << " of " << agreement.all;
    EXPECT_LE(agreement.apart, 0.25f);
    // What came from elsewhere is not taken for the worker's own.
    EXPECT_EQ(Tokens(Answers(*cluster, Path::kLocal)), Tokens(alone));
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

// Three requests at once; the prefill worker has most of their prompts already, so
// that they are handed over one right after the other.
std::vector<std::vector<uint32_t>> AnswersAtOnce(Cluster& cluster, uint32_t tokens) {
  std::vector<std::vector<uint32_t>> answers;
  for (const uint32_t count : {1u, tokens}) {
    std::vector<std::unique_ptr<Running>> running;
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      std::vector<uint32_t> prompt = RandomPrompt(65, seed);
      for (uint32_t& id : prompt) id = 3 + id % 600;
      running.push_back(std::make_unique<Running>(
          cluster.client(), MakeRequest(std::move(prompt), count, Path::kSplit)));
    }
    answers.clear();
    for (const auto& one : running) {
      const Result result = one->Get();
      EXPECT_TRUE(result.status.ok()) << result.status.message << cluster.Logs();
      answers.push_back(result.token_ids);
    }
  }
  return answers;
}

// Of all workers; none may have computed anything again.
uint64_t SwappedBytes(Cluster& cluster) {
  uint64_t swapped = 0;
  for (const WorkerStatus& worker : cluster.client().GetClusterStatus().second.workers) {
    EXPECT_EQ(worker.recomputed_tokens, 0u) << worker.id;
    swapped += worker.swapped_bytes;
  }
  return swapped;
}

// What came from other kernels is swapped, never computed again.
TEST_P(MixedPairsTest, PreemptionSwapsAndChangesNoToken) {
  // A CPU is through with as many tokens as an emulated GPU before others come.
  const uint32_t tokens = GetParam().gpu_decodes ? 45 : 250;
  std::vector<std::vector<uint32_t>> expected;
  {
    const auto cluster = Cluster::Start(Options(GetParam()));
    ASSERT_NE(cluster, nullptr);
    expected = AnswersAtOnce(*cluster, tokens);
    EXPECT_EQ(SwappedBytes(*cluster), 0u);
  }
  ClusterOptions options = Options(GetParam());
  const char* const small = GetParam().gpu_decodes ? "224" : "640";
  options.decode_flags.insert(options.decode_flags.end(), {"--kv-tokens", small});
  const auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  // Until three answers were under way at the same time, which chance decides.
  constexpr int kMostRounds = 50;
  for (int round = 0; round < kMostRounds && SwappedBytes(*cluster) == 0; ++round) {
    EXPECT_EQ(AnswersAtOnce(*cluster, tokens), expected);
  }
  EXPECT_GT(SwappedBytes(*cluster), 0u);
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

TEST_P(MixedPairsTest, KilledWorkersEndTheirStreamsAndTheNextPairGivesTheSameTokens) {
  const auto cluster = Cluster::Start(Options(GetParam()));
  ASSERT_NE(cluster, nullptr);
  Request request = Requests(Path::kSplit).front();
  request.max_tokens = GetParam().gpu_decodes ? 40 : 450;
  const Result whole = cluster->client().Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.message;
  for (const char* victim : {"prefill-1", "decode-1"}) {
    Running one(cluster->client(), request);
    ASSERT_TRUE(Eventually([&] { return one.tokens() > 3; })) << cluster->Logs();
    cluster->KillWorker(victim);
    const Result result = one.Get();
    if (victim[0] == 'p') {  // the KV is with the decode worker
      EXPECT_EQ(result.token_ids, whole.token_ids) << result.status.message;
    } else {
      EXPECT_EQ(result.status.code, StatusCode::kUnavailable) << result.status.message;
    }
    EXPECT_TRUE(cluster->AwaitWorker(victim, false));
    ASSERT_TRUE(cluster->StartWorker(victim));
    ASSERT_TRUE(cluster->AwaitWorker(victim)) << cluster->Logs();
    const Result again = cluster->client().Generate(request);
    EXPECT_EQ(again.token_ids, whole.token_ids) << again.status.message;
  }
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

TEST(MixedPairs, AreNotFormedUnlessTheOperatorSaysSo) {
  ClusterOptions options = Options({"", "bf16", "bf16", true});
  options.router_flags.clear();
  const auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  const Result split = cluster->client().Generate(Requests(Path::kSplit).front());
  EXPECT_EQ(split.status.code, StatusCode::kUnavailable);
  EXPECT_NE(split.status.message.find("--mixed-pairs"), std::string::npos) << split.status.message;
}

}  // namespace
}  // namespace baton::testing
