// SPDX-License-Identifier: Apache-2.0
// Right tokens on every path: hand-off over shm, ucx, nccl and tcp, and no hand-off.
#include <gtest/gtest.h>

#include "tests/integration/requests.h"

namespace baton::testing {
namespace {

struct Way {
  const char* name;
  std::vector<std::string> worker_flags;
  Path path;
  const char* transport;
};

std::vector<Way> Ways() {
  return {{"shm", {}, Path::kSplit, "shm"},
#ifdef BATON_HAS_UCX
          {"ucx", {"--transport", "ucx"}, Path::kSplit, "ucx"},
#endif
          {"nccl", {"--transport", "nccl"}, Path::kSplit, "nccl"},
          {"tcp", {"--transport", "tcp"}, Path::kSplit, "tcp"},
          {"local", {}, Path::kLocal, ""}};
}

class SplitTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    ClusterOptions options;
    options.worker_flags = GetParam().worker_flags;
    options.worker_flags.insert(options.worker_flags.end(), {"--chunk-tokens", "64"});
    cluster_ = Cluster::Start(options);
    ASSERT_NE(cluster_, nullptr);
  }

  void CheckRoute(const Result& result) {
    EXPECT_EQ(result.transport, GetParam().transport);
    EXPECT_EQ(result.decode_worker, "decode-1");
    EXPECT_EQ(result.prefill_worker, GetParam().path == Path::kSplit ? "prefill-1" : "");
  }

  std::unique_ptr<Cluster> cluster_;
};

INSTANTIATE_TEST_SUITE_P(All, SplitTest, ::testing::ValuesIn(Ways()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(SplitTest, TokensAreTheReferenceWhateverTheLengths) {
  for (const uint32_t prompt : {1u, 31u, 32u, 33u, 64u, 65u, 700u}) {
    for (const uint32_t tokens : {1u, 2u, 40u}) {
      const Request request = MakeRequest(RandomPrompt(prompt, prompt), tokens, GetParam().path);
      const Result result = cluster_->client().Generate(request);
      ASSERT_TRUE(result.status.ok()) << result.status.message << cluster_->Logs();
      EXPECT_EQ(result.token_ids, RightAnswer(request)) << prompt << " " << tokens;
      EXPECT_EQ(result.finish_reason, "length");
      EXPECT_EQ(result.prompt_tokens, prompt);
      EXPECT_EQ(result.completion_tokens, tokens);
      // A first token that ends the answer ends it on the prefill worker.
      if (tokens > 1) CheckRoute(result);
    }
  }
  EXPECT_TRUE(cluster_->AwaitIdle()) << cluster_->Describe();
}

TEST_P(SplitTest, EightAtOnceGetTheirOwnTokens) {
  std::vector<std::unique_ptr<Running>> running;
  for (uint32_t i = 0; i < 24; ++i) {
    running.push_back(std::make_unique<Running>(
        cluster_->client(), MakeRequest(RandomPrompt(20 + 37 * i, i), 20 + i, GetParam().path)));
    if (running.size() >= 8) {
      Running& oldest = *running[running.size() - 8];
      const Result result = oldest.Get();
      EXPECT_TRUE(result.status.ok()) << result.status.message;
      EXPECT_EQ(result.token_ids, RightAnswer(oldest.request()));
      CheckRoute(result);
    }
  }
  for (size_t i = running.size() - 7; i < running.size(); ++i) {
    const Result result = running[i]->Get();
    EXPECT_TRUE(result.status.ok()) << result.status.message;
    EXPECT_EQ(result.token_ids, RightAnswer(running[i]->request()));
  }
  EXPECT_TRUE(cluster_->AwaitIdle()) << cluster_->Describe();
}

// Of a long prompt the blocks move that its window still needs.
TEST_P(SplitTest, WindowsAnswerAsAloneAndMoveWhatIsInSight) {
  const kv::Window window{.tokens = 64, .sinks = 32, .stride = 256};
  Request request = MakeRequest(RandomPrompt(1500, 5), 100, GetParam().path);
  const Result all = cluster_->client().Generate(request);
  request.window = window.tokens;
  request.window_sinks = window.sinks;
  request.window_stride = window.stride;
  const Result result = cluster_->client().Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.message << cluster_->Logs();
  EXPECT_EQ(result.token_ids, model::FakeReference({}, *request.prompt_ids, 100, window));
  EXPECT_NE(result.token_ids, all.token_ids);
  CheckRoute(result);
  // 1,500 tokens are 47 blocks; one is the sink, 5 are of strides, 3 of the window.
  if (GetParam().path == Path::kSplit) {
    EXPECT_EQ(result.handoff_bytes * 47, all.handoff_bytes * 9);
  }
  EXPECT_TRUE(cluster_->AwaitIdle()) << cluster_->Describe();
}

// Of the prompt's 47 blocks a decode worker with 12 holds the 9 that are in sight.
TEST(WindowedSplit, PromptMayBeLongerThanThePoolOfItsDecodeWorker) {
  ClusterOptions options;
  options.decode_flags = {"--kv-tokens", "384"};
  const auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  const kv::Window window{.tokens = 64, .sinks = 32, .stride = 256};
  for (const Path path : {Path::kAuto, Path::kSplit, Path::kLocal}) {
    Request request = MakeRequest(RandomPrompt(1500, 5), 100, path);
    EXPECT_EQ(cluster->client().Generate(request).status.code, StatusCode::kInvalidArgument);
    request.window = window.tokens;
    request.window_sinks = window.sinks;
    request.window_stride = window.stride;
    const Result result = cluster->client().Generate(request);
    if (path == Path::kLocal) {  // computed there, all of it would get blocks first
      EXPECT_EQ(result.status.code, StatusCode::kInvalidArgument) << result.status.message;
      continue;
    }
    ASSERT_TRUE(result.status.ok()) << result.status.message << cluster->Logs();
    EXPECT_EQ(result.token_ids, model::FakeReference({}, *request.prompt_ids, 100, window));
    EXPECT_EQ(result.path_reason, path == Path::kAuto ? "prompt_exceeds_decode_pool" : "requested");
  }
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

// What the first path answered; the others must say the same.
std::vector<std::vector<uint32_t>>& Sampled() {
  static std::vector<std::vector<uint32_t>> sampled;
  return sampled;
}

TEST_P(SplitTest, SeedsGiveEqualTokensOnEveryPath) {
  std::vector<std::vector<uint32_t>> answers;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    Request request = MakeRequest(RandomPrompt(100, 9), 30, GetParam().path);
    request.temperature = 0.8f;
    request.top_p = 0.95f;
    request.seed = seed;
    const Result result = cluster_->client().Generate(request);
    ASSERT_TRUE(result.status.ok()) << result.status.message;
    EXPECT_EQ(result.seed, seed);
    answers.push_back(result.token_ids);
  }
  EXPECT_NE(answers[0], answers[1]);
  if (Sampled().empty()) Sampled() = answers;
  EXPECT_EQ(answers, Sampled());
}

TEST_P(SplitTest, StopTokenEndsTheAnswer) {
  Request request = MakeRequest(RandomPrompt(50, 3), 30, GetParam().path);
  const std::vector<uint32_t> right = RightAnswer(request);
  for (const size_t end : {size_t{0}, size_t{1}, size_t{7}}) {
    request.stop_token_ids = {right[end]};
    const Result result = cluster_->client().Generate(request);
    ASSERT_TRUE(result.status.ok()) << result.status.message;
    EXPECT_EQ(result.finish_reason, "stop");
    ASSERT_FALSE(result.token_ids.empty());
    // Ends at its first occurrence, which may be before `end`.
    EXPECT_EQ(result.token_ids.back(), right[end]);
    EXPECT_EQ(result.token_ids,
              std::vector<uint32_t>(right.begin(), right.begin() + result.token_ids.size()));
  }
  EXPECT_TRUE(cluster_->AwaitIdle()) << cluster_->Describe();
}

}  // namespace
}  // namespace baton::testing
