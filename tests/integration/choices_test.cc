// SPDX-License-Identifier: Apache-2.0
// Several answers, beams and phases through running processes: the same on every
// path, with one prompt and one hand-off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/integration/requests.h"

namespace baton::testing {
namespace {

// One of each strategy.
std::vector<Request> Requests(Path path) {
  std::vector<Request> requests;
  const auto add = [&](uint32_t tokens) -> Request& {
    const auto seed = static_cast<uint32_t>(requests.size());
    Request& request =
        requests.emplace_back(MakeRequest(RandomPrompt(tokens, 100 + seed), 60, path));
    request.temperature = 0.8f;
    request.seed = seed;
    return request;
  };
  add(100).n = 4;
  Request& ranked = add(65);
  ranked.n = 2;
  ranked.best_of = 6;
  ranked.logprobs = 1;
  Request& beams = add(90);
  beams.temperature = 0;
  beams.n = 3;
  beams.beam = Beam{.width = 5, .length_penalty = 0.5f, .early_stopping = "never"};
  beams.logprobs = 2;
  beams.ignore_eos = false;
  Request& phased = add(32);
  phased.phases.resize(2);
  phased.phases[0].beam = Beam{.width = 3, .length_penalty = {}, .early_stopping = {}};
  phased.phases[0].max_tokens = 12;
  Request& sampled = add(40);
  sampled.n = 3;
  sampled.phases.resize(2);
  sampled.phases[0].temperature = 0;
  sampled.phases[0].max_tokens = 5;
  sampled.repetition_penalty = 1.1f;
  return requests;
}

void ExpectSame(const Result& a, const Result& b) {
  ASSERT_TRUE(a.status.ok()) << a.status.message;
  ASSERT_TRUE(b.status.ok()) << b.status.message;
  ASSERT_EQ(a.choices.size(), b.choices.size());
  EXPECT_EQ(a.completion_tokens, b.completion_tokens);
  for (size_t i = 0; i < a.choices.size(); ++i) {
    EXPECT_EQ(a.choices[i].token_ids, b.choices[i].token_ids) << i;
    EXPECT_EQ(a.choices[i].finish_reason, b.choices[i].finish_reason) << i;
    EXPECT_EQ(a.choices[i].score, b.choices[i].score) << i;
    ASSERT_EQ(a.choices[i].logprobs.size(), b.choices[i].logprobs.size()) << i;
    for (size_t t = 0; t < a.choices[i].logprobs.size(); ++t) {
      EXPECT_EQ(a.choices[i].logprobs[t].logprob, b.choices[i].logprobs[t].logprob);
      EXPECT_EQ(a.choices[i].logprobs[t].top, b.choices[i].logprobs[t].top);
    }
  }
}

class ChoicesTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Transports, ChoicesTest, ::testing::ValuesIn(HandoffTransports()),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(ChoicesTest, EveryStrategyGivesTheSameOnEveryPathAndBesideOthers) {
  ClusterOptions options;
  options.worker_flags = {"--transport", GetParam(), "--chunk-tokens", "64"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  std::vector<Result> local;
  for (const Request& request : Requests(Path::kLocal)) {
    local.push_back(cluster->client().Generate(request));
  }
  for (const Path path : {Path::kSplit, Path::kAuto}) {
    std::vector<std::unique_ptr<Running>> running;
    for (const Request& request : Requests(path)) {
      running.push_back(std::make_unique<Running>(cluster->client(), request));
    }
    for (size_t i = 0; i < running.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "request " << i);
      const Result result = running[i]->Get();
      ExpectSame(result, local[i]);
      if (path == Path::kSplit) {
        EXPECT_EQ(result.transport, GetParam());
      }
    }
  }
  // They are answers of their own.
  std::set<std::vector<uint32_t>> distinct;
  for (const Choice& choice : local[0].choices) distinct.insert(choice.token_ids);
  EXPECT_EQ(distinct.size(), 4u);
  EXPECT_EQ(local[1].completion_tokens, 6u * 60);
  EXPECT_GE(*local[1].choices[0].score, *local[1].choices[1].score);
  EXPECT_GE(*local[2].choices[0].score, *local[2].choices[1].score);
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

TEST_P(ChoicesTest, PromptIsComputedOnceAndHandedOverOnceForAllOfThem) {
  ClusterOptions options;
  options.worker_flags = {"--transport", GetParam()};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Request one = MakeRequest(RandomPrompt(500, 1), 20, Path::kSplit);
  one.prefix_cache = false;
  Request eight = one;
  eight.n = 8;
  const Result first = cluster->client().Generate(one);
  const Result all = cluster->client().Generate(eight);
  ASSERT_TRUE(all.status.ok()) << all.status.message;
  EXPECT_EQ(all.handoff_bytes, first.handoff_bytes);
  EXPECT_EQ(all.choices.size(), 8u);
  EXPECT_EQ(all.choices[0].token_ids, first.token_ids);
  const auto prompts = [&](const std::string& id) {
    for (const WorkerStatus& worker : cluster->client().GetClusterStatus().second.workers) {
      if (worker.id == id) return worker.prompt_tokens;
    }
    return uint64_t{0};
  };
  EXPECT_TRUE(Eventually([&] { return prompts("prefill-1") == 1000; })) << prompts("prefill-1");
  EXPECT_EQ(prompts("decode-1"), 0u);
}

TEST_P(ChoicesTest, AKilledWorkerEndsThemOnceAndTheOtherIsClean) {
  for (const std::string victim : {"decode-1", "prefill-1"}) {
    ClusterOptions options;
    options.worker_flags = {"--transport", GetParam(), "--chunk-tokens", "64"};
    options.decode_flags = {"--fake-step-delay", "10ms"};
    if (victim == "prefill-1") options.prefill_flags = {"--fake-token-delay", "500us"};
    auto cluster = Cluster::Start(options);
    ASSERT_NE(cluster, nullptr);
    std::vector<std::unique_ptr<Running>> running;
    for (Request& request : Requests(Path::kSplit)) {
      request.max_tokens = 500;
      if (request.beam) request.max_tokens = 200;
      running.push_back(std::make_unique<Running>(cluster->client(), request));
    }
    if (victim == "decode-1") {
      ASSERT_TRUE(Eventually([&] { return running[0]->tokens() > 12; }));
    }
    cluster->KillWorker(victim);
    for (auto& one : running) {
      const Result result = one->Get();
      EXPECT_EQ(result.status.code, StatusCode::kUnavailable) << result.status.message;
    }
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

TEST_P(ChoicesTest, ACancelledRequestLeavesNothingOfAnyChoice) {
  ClusterOptions options;
  options.worker_flags = {"--transport", GetParam(), "--fake-step-delay", "2ms"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  std::vector<std::unique_ptr<Running>> running;
  for (Request& request : Requests(Path::kSplit)) {
    request.max_tokens = 400;
    running.push_back(std::make_unique<Running>(cluster->client(), request));
  }
  ASSERT_TRUE(Eventually([&] { return running[0]->tokens() > 20; }));
  for (auto& one : running) one->Cancel();
  for (auto& one : running) EXPECT_EQ(one->Get().status.code, StatusCode::kCancelled);
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

// One of them alone would fill the pool: the others wait for their turn.
TEST_P(ChoicesTest, SmallPoolsPutWholeRequestsAside) {
  ClusterOptions options;
  options.worker_flags = {"--transport", GetParam(), "--kv-tokens", "1024", "--kv-swap", "4MiB"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  std::vector<Request> requests, alone;
  for (Path path : {Path::kLocal, Path::kSplit}) {
    for (Request& request : Requests(path)) {
      request.max_tokens = 110;
      (path == Path::kLocal ? alone : requests).push_back(request);
    }
  }
  std::vector<Result> expected;
  for (const Request& request : alone) expected.push_back(cluster->client().Generate(request));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Running>> running;
    for (const Request& request : requests) {
      running.push_back(std::make_unique<Running>(cluster->client(), request));
    }
    for (size_t i = 0; i < running.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "request " << i);
      ExpectSame(running[i]->Get(), expected[i]);
    }
  }
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

}  // namespace
}  // namespace baton::testing
