// SPDX-License-Identifier: Apache-2.0
// Prompts that begin alike, through a router and its workers.
#include <gtest/gtest.h>

#include "tests/integration/requests.h"

namespace baton::testing {
namespace {

using Tokens = std::vector<uint32_t>;

// Of the fake model: 2 layers, 2 heads, K and V of 16 floats for 32 tokens.
constexpr uint64_t kBlockBytes = uint64_t{2} * 2 * 2 * 16 * 4 * 32;

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixSharingTest : public ::testing::Test {
 protected:
  void Start(int prefill = 1, int decode = 1, std::vector<std::string> worker_flags = {}) {
    ClusterOptions options;
    options.prefill = prefill;
    options.decode = decode;
    options.worker_flags = std::move(worker_flags);
    cluster_ = Cluster::Start(options);
    ASSERT_NE(cluster_, nullptr);
  }
  Result Ask(const Request& request) {
    const Result result = cluster_->client().Generate(request);
    EXPECT_TRUE(result.status.ok()) << result.status.message << cluster_->Logs();
    EXPECT_EQ(result.token_ids, RightAnswer(request));
    return result;
  }
  Result Ask(const Tokens& prompt, uint32_t max_tokens, Path path = Path::kAuto) {
    return Ask(MakeRequest(prompt, max_tokens, path));
  }

  std::unique_ptr<Cluster> cluster_;
};

TEST_F(PrefixSharingTest, SharedPrefixIsComputedAndMovedOnce) {
  for (const char* transport : {"shm", "tcp"}) {
    Start(1, 1, {"--transport", transport});
    const Tokens prefix = RandomPrompt(1000, 1);
    for (uint32_t i = 0; i < 20; ++i) {
      const Result result = Ask(prefix + RandomPrompt(48, 100 + i), 8, Path::kSplit);
      EXPECT_EQ(result.prompt_tokens, 1048u);
      EXPECT_EQ(result.transport, transport);
      EXPECT_GE(result.cached_prompt_tokens, i == 0 ? 0u : 992u);
      EXPECT_EQ(result.handoff_cached_tokens, i == 0 ? 0u : 992u);
      EXPECT_EQ(result.handoff_bytes, (i == 0 ? 33 : 2) * kBlockBytes);
    }
    EXPECT_TRUE(cluster_->AwaitIdle()) << cluster_->Describe();
  }
}

TEST_F(PrefixSharingTest, EachRoundOfAConversationComputesItsNewTokens) {
  Start(2, 2);
  Tokens conversation = RandomPrompt(200, 1);
  Tokens previous;
  for (uint32_t round = 0; round < 5; ++round) {
    const Result result = Ask(conversation, 90);
    const size_t news = conversation.size() - previous.size();
    EXPECT_LE(result.prompt_tokens - result.cached_prompt_tokens, news + 32) << round;
    EXPECT_EQ(result.path_reason == "mostly_cached", round > 0) << result.path_reason;
    previous = conversation + result.token_ids;
    conversation = previous + RandomPrompt(40, 10 + round);
  }
  EXPECT_TRUE(cluster_->AwaitIdle()) << cluster_->Describe();
}

// Where a split is asked for, the prefill worker computes what it lacks, and
// the decode worker is sent what it lacks.
TEST_F(PrefixSharingTest, SplitConversationMovesOnlyNewBlocks) {
  Start();
  Tokens conversation = RandomPrompt(200, 1);
  for (uint32_t round = 0; round < 5; ++round) {
    const size_t had = round == 0 ? 0 : conversation.size() - 40;
    const Result result = Ask(conversation, 90, Path::kSplit);
    const size_t kept = had / 32 * 32;
    EXPECT_GE(result.handoff_cached_tokens + 32, kept);
    EXPECT_LE(result.handoff_bytes,
              (conversation.size() - kept) / 32 * kBlockBytes + 2 * kBlockBytes);
    conversation = conversation + result.token_ids + RandomPrompt(40, 10 + round);
  }
}

TEST_F(PrefixSharingTest, TenantsAndOptOutsShareNothing) {
  Start();
  Request request = MakeRequest(RandomPrompt(320, 1), 4, Path::kSplit);
  request.cache_salt = "org_1";
  Ask(request);
  const Result again = Ask(request);
  EXPECT_GE(again.cached_prompt_tokens, 288u);
  EXPECT_EQ(again.handoff_cached_tokens, 320u);
  EXPECT_EQ(again.handoff_bytes, 0u) << "nothing but the commit is left";
  request.cache_salt = "org_12";
  EXPECT_EQ(Ask(request).cached_prompt_tokens, 0u);
  request.cache_salt = "org_1";
  request.prefix_cache = false;
  const Result result = Ask(request);
  EXPECT_EQ(result.cached_prompt_tokens, 0u);
  EXPECT_EQ(result.handoff_cached_tokens, 0u);
}

TEST_F(PrefixSharingTest, WorkersCanBeRunWithoutACache) {
  Start(1, 1, {"--prefix-cache", "off"});
  const Tokens prompt = RandomPrompt(320, 1);
  for (int i = 0; i < 2; ++i) {
    const Result result = Ask(prompt, 4);
    EXPECT_EQ(result.cached_prompt_tokens, 0u);
    EXPECT_EQ(result.handoff_bytes, 10 * kBlockBytes);
  }
}

// Its prefixes go with a worker; requests do not wait for it.
TEST_F(PrefixSharingTest, KilledWorkerTakesItsPrefixesWithIt) {
  Start(2);
  const Tokens prompt = RandomPrompt(640, 1);
  const std::string warm = Ask(prompt, 4, Path::kSplit).prefill_worker;
  EXPECT_EQ(Ask(prompt, 4, Path::kSplit).prefill_worker, warm);
  cluster_->KillWorker(warm);
  ASSERT_TRUE(cluster_->AwaitWorker(warm, false));
  for (int i = 0; i < 20; ++i) {
    const Result result = Ask(prompt, 4, Path::kSplit);
    EXPECT_NE(result.prefill_worker, warm);
    EXPECT_EQ(result.cached_prompt_tokens > 0, i > 0);
  }
  ASSERT_TRUE(cluster_->StartWorker(warm));
  ASSERT_TRUE(cluster_->AwaitWorker(warm));
  const Result result = Ask(prompt, 4, Path::kSplit);
  EXPECT_NE(result.prefill_worker, warm) << "it comes back with nothing";
}

// A router that starts anew learns what its workers have.
TEST_F(PrefixSharingTest, RestartedRouterIsToldOfPrefixes) {
  Start(2);
  const Tokens prompt = RandomPrompt(640, 1);
  const std::string warm = Ask(prompt, 4, Path::kSplit).prefill_worker;
  ASSERT_TRUE(cluster_->RestartRouter());
  for (const char* worker : {"prefill-1", "prefill-2", "decode-1"}) {
    ASSERT_TRUE(cluster_->AwaitWorker(worker));
  }
  const Result result = Ask(prompt, 4, Path::kSplit);
  EXPECT_EQ(result.prefill_worker, warm);
  EXPECT_GE(result.cached_prompt_tokens, 608u);
}

}  // namespace
}  // namespace baton::testing
