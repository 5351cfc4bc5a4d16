// SPDX-License-Identifier: Apache-2.0
// The split and the local path: who is told what, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/prefix/block_hash.h"
#include "tests/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

TEST_F(DispatcherTest, SplitAsksTheDecodeWorkerFirstAndThePrefillWorkerOnceItAccepted) {
  const auto p = AttachPrefill();
  const auto d = AttachDecode();
  Submit(Request(), absl::Seconds(10));
  ASSERT_EQ(d->assigns.size(), 1u);
  EXPECT_TRUE(p->assigns.empty());
  const v1::Assign decode = d->assigns[0];
  EXPECT_EQ(decode.role(), v1::Assign::ROLE_DECODE);
  EXPECT_EQ(decode.handoff_key().size(), 16u);

  now_ += absl::Seconds(1);
  Accept(kD, decode.sequence_key());
  ASSERT_EQ(p->assigns.size(), 1u);
  const v1::Assign& prefill = p->assigns[0];
  EXPECT_EQ(prefill.role(), v1::Assign::ROLE_PREFILL);
  EXPECT_EQ(prefill.handoff_key(), decode.handoff_key());
  EXPECT_NE(prefill.sequence_key(), decode.sequence_key());
  ASSERT_EQ(prefill.handoff_endpoints_size(), 2);
  EXPECT_EQ(prefill.handoff_endpoints(0).transport(), "shm");
  EXPECT_EQ(prefill.deadline_ms(), 9000u);
  EXPECT_EQ(prefill.prompt_ids_size(), 3);
  EXPECT_EQ(prefill.max_tokens(), 7u);
  EXPECT_EQ(prefill.sampling().seed(), 42u);
  EXPECT_EQ(prefill.stop_token_ids(0), FakeTokenizer::kEnd);
  Accept(kD, decode.sequence_key());
  EXPECT_EQ(p->assigns.size(), 1u);  // once
}

// Both workers look the prompt up under the same salt.
TEST_F(DispatcherTest, BothWorkersHearHowPrefixesAreShared) {
  ValidatedRequest request = Request();
  request.cache_salt = "tenant";
  request.prefix_cache = false;
  request.window = {.tokens = 64, .sinks = 32, .stride = 96, .keep = {{{64, 96}}}};
  const Split s = StartSplit(request);
  for (const auto& link : {s.p, s.d}) {
    EXPECT_EQ(link->assigns[0].cache_salt(), "tenant");
    EXPECT_TRUE(link->assigns[0].no_prefix_cache());
    EXPECT_EQ(link->assigns[0].window(), 64u);
    EXPECT_EQ(link->assigns[0].window_sinks(), 32u);
    EXPECT_EQ(link->assigns[0].window_stride(), 96u);
    ASSERT_EQ(link->assigns[0].window_keep_size(), 1);
    EXPECT_EQ(link->assigns[0].window_keep(0).end(), 96u);
  }
}

// Converted KV is no KV of the decode worker's own: it stays out of its cache.
TEST_F(DispatcherTest, DecodeWorkerOfAMixedPairCachesNothing) {
  const auto mixed = [](v1::WorkerMessage hello, const char* type) {
    hello.mutable_hello()->set_numerics_id(type);
    hello.mutable_hello()->set_compute_id("c");
    hello.mutable_hello()->set_kv_type(type);
    hello.mutable_hello()->set_kv_convertible(true);
    return hello;
  };
  const auto p = Attach(kP, mixed(MakeHello("p", v1::WORKER_ROLE_PREFILL), "bf16"));
  const auto d = Attach(kD, mixed(MakeHello("d", v1::WORKER_ROLE_DECODE), "int8"));
  Submit(Request());
  ASSERT_EQ(d->assigns.size(), 1u);
  EXPECT_TRUE(d->assigns[0].no_prefix_cache());
  EXPECT_TRUE(d->assigns[0].foreign_kv());
  Accept(kD, d->assigns[0].sequence_key());
  ASSERT_EQ(p->assigns.size(), 1u);
  EXPECT_FALSE(p->assigns[0].no_prefix_cache());
}

// Digests come with the step that ends a sequence; the next round of the
// conversation finds them, and its ledger says why it was not split.
TEST_F(DispatcherTest, NextRoundRunsWhereTheConversationIs) {
  AttachPrefill();
  const auto d = AttachDecode();
  ValidatedRequest request = Request();
  request.prompt = std::vector<TokenId>(100, 7);
  request.prefix = prefix::DigestChain("", request.prompt);
  Step step;
  for (const uint64_t digest : request.prefix) step.AddPrefix(digest);
  Say(kD, step);
  const auto client = Submit(request);
  ASSERT_EQ(d->assigns.size(), 1u);
  EXPECT_EQ(d->assigns[0].role(), v1::Assign::ROLE_WHOLE);
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Started(key, 0, 96).Tokens(key, 0, {'A'}).End(key, v1::FINISH_REASON_STOP));
  ASSERT_EQ(client->finished.size(), 1u);
  EXPECT_EQ(client->finished[0].usage().cached_prompt_tokens(), 96u);
  EXPECT_EQ(client->finished[0].route().reason(), "mostly_cached");
}

TEST_F(DispatcherTest, LedgerSaysWhatTravelledAndWhatDidNot) {
  const Split s = StartSplit();
  Say(kP, Step().Started(s.p_key).Tokens(s.p_key, 0, {'A'}).HandedOff(s.p_key, 4096));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}).End(s.d_key, v1::FINISH_REASON_STOP, 64));
  ASSERT_EQ(s.client->finished.size(), 1u);
  EXPECT_EQ(s.client->finished[0].route().handoff_bytes(), 4096u);
  EXPECT_EQ(s.client->finished[0].route().handoff_cached_tokens(), 64u);
  EXPECT_EQ(s.client->finished[0].route().reason(), "unknown_costs");
}

TEST_F(DispatcherTest, FirstTokenGoesToTheClientBeforeTheHandOff) {
  const Split s = StartSplit();
  Say(kP, Step().Started(s.p_key).Tokens(s.p_key, 0, {'A'}));
  ASSERT_EQ(s.client->started.size(), 1u);
  EXPECT_EQ(s.client->started[0].request_id(), "r");
  EXPECT_EQ(s.client->started[0].model(), "toy");
  EXPECT_EQ(s.client->started[0].prompt_tokens(), 3u);
  EXPECT_EQ(s.client->started[0].seed(), 42u);
  EXPECT_EQ(s.client->text, "A");
}

TEST_F(DispatcherTest, FailureOfThePrefillWorkerIsNotHiddenByWhatItDidToTheDecodeWorker) {
  const Split s = StartSplit();
  Say(kD, Step().Fail(s.d_key, Code::kCancelled, "the sender gave up"));
  Say(kP, Step().Fail(s.p_key, Code::kInternal, "NaN"));
  EXPECT_EQ(s.client->status().code(), Code::kInternal);
  EXPECT_EQ(s.client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, FailureOfTheDecodeWorkerCallsThePrefillWorkerOff) {
  const Split s = StartSplit();
  Say(kD, Step().Fail(s.d_key, Code::kDeadlineExceeded, "no hand-off within 2m"));
  EXPECT_EQ(s.p->cancels, std::vector<uint64_t>{s.p_key});
  Say(kP, Step().Fail(s.p_key, Code::kCancelled, "cancelled"));
  EXPECT_EQ(s.client->status().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, FirstTokenThatEndsTheAnswerFreesTheDecodeWorker) {
  ValidatedRequest request = Request();
  request.max_tokens = 1;
  const Split s = StartSplit(request);
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).End(s.p_key, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->finished[0].usage().completion_tokens(), 1u);
  EXPECT_EQ(s.client->finished[0].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
  Say(kD, Step().Fail(s.d_key, Code::kCancelled, "cancelled"));
  EXPECT_EQ(s.client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, PrefillFailureEndsTheStreamWithItsStatusAndFreesTheDecodeWorker) {
  const Split s = StartSplit();
  Say(kP, Step().Fail(s.p_key, Code::kResourceExhausted, "too many wait"));
  EXPECT_EQ(s.client->status().code(), Code::kResourceExhausted);
  EXPECT_EQ(s.client->status().message(), "too many wait");
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
}

TEST_F(DispatcherTest, DecodeRefusalEndsTheStreamAndThePrefillWorkerHearsNothing) {
  const auto p = AttachPrefill();
  const auto d = AttachDecode();
  const auto client = Submit(Request());
  Say(kD, Step().Fail(d->assigns[0].sequence_key(), Code::kUnavailable, "draining"));
  EXPECT_EQ(client->status().code(), Code::kUnavailable);
  EXPECT_TRUE(p->assigns.empty());
  EXPECT_TRUE(p->cancels.empty());
}

TEST_F(DispatcherTest, LocalPathRunsWholeOnTheDecodeWorker) {
  AttachPrefill();
  const auto d = AttachDecode();
  const auto client = Submit(Request(v1::PATH_LOCAL));
  ASSERT_EQ(d->assigns.size(), 1u);
  EXPECT_EQ(d->assigns[0].role(), v1::Assign::ROLE_WHOLE);
  const uint64_t key = d->assigns[0].sequence_key();
  Accept(kD, key);
  Say(kD, Step().Started(key).Tokens(key, 0, {'A'}));
  Say(kD, Step().Tokens(key, 1, {'B'}).End(key, v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(client->text, "AB");
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->finished[0].route().prefill_worker(), "");
  EXPECT_EQ(client->finished[0].route().decode_worker(), "d");
  EXPECT_EQ(client->finished[0].timing().transfer(), 0);
}

TEST_F(DispatcherTest, FallBackToLocalIsCounted) {
  const auto d = AttachDecode();
  Submit(Request());
  EXPECT_EQ(d->assigns.at(0).role(), v1::Assign::ROLE_WHOLE);
  EXPECT_NE(metrics_.Text().find("baton_router_fallbacks_total{reason=\"no_prefill_worker\"} 1"),
            std::string::npos)
      << metrics_.Text();
}

}  // namespace
}  // namespace baton::router
