// SPDX-License-Identifier: Apache-2.0
#include "router/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/prefix/block_hash.h"
#include "common/rpc/status.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

using Code = absl::StatusCode;

// What one message of a worker holds.
class Step {
 public:
  Step& Started(uint64_t key, int64_t start_us = 0, uint32_t cached = 0) {
    v1::PrefillStarted* started = message_.mutable_step()->add_started();
    started->set_sequence_key(key);
    started->set_start_unix_us(start_us);
    started->set_cached_prompt_tokens(cached);
    return *this;
  }
  Step& Tokens(uint64_t key, uint32_t first, const std::vector<uint32_t>& ids) {
    v1::SequenceTokens* tokens = message_.mutable_step()->add_tokens();
    tokens->set_sequence_key(key);
    tokens->set_first_index(first);
    tokens->mutable_token_ids()->Add(ids.begin(), ids.end());
    return *this;
  }
  v1::SequenceTokens& last() {
    return *message_.mutable_step()->mutable_tokens(message_.step().tokens_size() - 1);
  }
  Step& AddPrefix(uint64_t digest) {
    message_.mutable_step()->add_prefixes()->add_added(digest);
    return *this;
  }
  Step& End(uint64_t key, v1::FinishReason reason, uint32_t cached = 0) {
    v1::SequenceEnd* end = message_.mutable_step()->add_ends();
    end->set_sequence_key(key);
    end->set_reason(reason);
    end->set_cached_prompt_tokens(cached);
    return *this;
  }
  Step& Fail(uint64_t key, Code code, const std::string& why) {
    End(key, v1::FINISH_REASON_UNSPECIFIED);
    v1::SequenceEnd* end = message_.mutable_step()->mutable_ends(message_.step().ends_size() - 1);
    end->set_code(static_cast<int>(code));
    end->set_message(why);
    return *this;
  }
  Step& HandedOff(uint64_t key, uint64_t bytes = 0) {
    End(key, v1::FINISH_REASON_UNSPECIFIED);
    v1::SequenceEnd* end = message_.mutable_step()->mutable_ends(message_.step().ends_size() - 1);
    end->set_handed_off(true);
    end->set_handoff_bytes(bytes);
    end->set_transport("shm");
    return *this;
  }
  const v1::WorkerMessage& message() const { return message_; }

 private:
  v1::WorkerMessage message_;
};

class DispatcherTest : public testing::Test {
 protected:
  static constexpr LinkId kP = 1, kD = 2;

  void SetUp() override { Make(); }

  // With `options_` as they are now.
  void Make() { core_ = std::make_unique<Dispatcher>(options_, &slot_, &router_metrics_); }

  std::shared_ptr<FakeLink> Attach(LinkId id, const v1::WorkerMessage& hello) {
    auto link = std::make_shared<FakeLink>();
    core_->OpenLink(id, link, now_);
    core_->OnMessage(id, hello, now_);
    return link;
  }
  std::shared_ptr<FakeLink> AttachPrefill(const std::string& id = "p", LinkId link = kP) {
    return Attach(link, MakeHello(id, v1::WORKER_ROLE_PREFILL));
  }
  std::shared_ptr<FakeLink> AttachDecode(const std::string& id = "d", LinkId link = kD,
                                         uint32_t blocks = 100) {
    return Attach(link, MakeHello(id, v1::WORKER_ROLE_DECODE, blocks));
  }

  static ValidatedRequest Request(v1::Path path = v1::PATH_UNSPECIFIED) {
    ValidatedRequest request;
    request.request_id = "r";
    request.prompt = {1, 2, 3};
    request.max_tokens = 7;
    request.stop_tokens = {FakeTokenizer::kEnd};
    request.path = path;
    request.sampling.set_seed(42);
    return request;
  }

  std::shared_ptr<FakeClient> Submit(const ValidatedRequest& request,
                                     absl::Duration deadline = absl::InfiniteDuration()) {
    auto client = std::make_shared<FakeClient>();
    core_->Submit({++last_request_, request, model_, client, now_, now_ + deadline}, now_);
    return client;
  }

  void Accept(LinkId id, uint64_t key) {
    v1::WorkerMessage message;
    message.mutable_accepted()->set_sequence_key(key);
    core_->OnMessage(id, message, now_);
  }
  void Say(LinkId id, const Step& step) { core_->OnMessage(id, step.message(), now_); }
  void Beat(LinkId id) {
    v1::WorkerMessage message;
    message.mutable_heartbeat();
    core_->OnMessage(id, message, now_);
  }
  void Advance(absl::Duration by) {
    now_ += by;
    core_->Tick(now_);
  }

  // A split request up to the point where the prefill worker has it.
  struct Split {
    std::shared_ptr<FakeLink> p, d;
    std::shared_ptr<FakeClient> client;
    uint64_t p_key = 0, d_key = 0;
  };
  Split StartSplit(const ValidatedRequest& request = Request()) {
    Split s;
    s.p = AttachPrefill();
    s.d = AttachDecode();
    s.client = Submit(request);
    s.d_key = s.d->assigns.at(0).sequence_key();
    Accept(kD, s.d_key);
    s.p_key = s.p->assigns.at(0).sequence_key();
    return s;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  DispatcherOptions options_;
  metrics::Metrics metrics_;
  RouterMetrics router_metrics_{&metrics_};
  std::shared_ptr<ServedModel> model_ = MakeTextModel({"DEF", "G", "HI", "J", "KLM"});
  ModelSlot slot_{model_};
  std::unique_ptr<Dispatcher> core_;
  RequestKey last_request_ = 0;
};

// --- The split path ---

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

TEST_F(DispatcherTest, MergesBothWorkersAndFinishesWithTheLedger) {
  const Split s = StartSplit();
  const int64_t t0 = absl::ToUnixMicros(now_);
  now_ += absl::Milliseconds(30);
  Step first;
  first.Started(s.p_key, t0 + 10'000, 2).Tokens(s.p_key, 0, {'A'});
  first.last().set_prefill_end_unix_us(t0 + 29'000);
  Say(kP, first);
  Say(kP, Step().HandedOff(s.p_key));
  now_ += absl::Milliseconds(20);
  Step second;
  second.Tokens(s.d_key, 1, {'B'});
  second.last().set_first_step_unix_us(t0 + 33'000);
  Say(kD, second);
  now_ += absl::Milliseconds(10);
  Say(kD,
      Step().Tokens(s.d_key, 2, {'C', FakeTokenizer::kEnd}).End(s.d_key, v1::FINISH_REASON_STOP));

  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "ABC");
  EXPECT_EQ(s.client->ids, (std::vector<uint32_t>{'A', 'B', 'C', FakeTokenizer::kEnd}));
  ASSERT_EQ(s.client->finished.size(), 1u);
  const v1::Finished& f = s.client->finished[0];
  EXPECT_EQ(f.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(f.usage().prompt_tokens(), 3u);
  EXPECT_EQ(f.usage().cached_prompt_tokens(), 2u);
  EXPECT_EQ(f.usage().completion_tokens(), 4u);
  EXPECT_EQ(f.route().prefill_worker(), "p");
  EXPECT_EQ(f.route().decode_worker(), "d");
  EXPECT_EQ(f.route().transport(), "shm");
  EXPECT_NEAR(f.timing().queue(), 10, 1e-6);
  EXPECT_NEAR(f.timing().prefill(), 20, 1e-6);
  EXPECT_NEAR(f.timing().first_token(), 30, 1e-6);
  EXPECT_NEAR(f.timing().transfer(), 4, 1e-6);
  EXPECT_NEAR(f.timing().decode(), 30, 1e-6);
  EXPECT_NEAR(f.timing().total(), 60, 1e-6);
  EXPECT_TRUE(s.p->cancels.empty());
  EXPECT_TRUE(s.d->cancels.empty());
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, TokensThatOvertakeTheFirstOneWaitForIt) {
  const Split s = StartSplit();
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  Say(kD, Step().Tokens(s.d_key, 2, {'C'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(s.client->ids.empty());
  EXPECT_FALSE(s.client->ended());
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).HandedOff(s.p_key));
  EXPECT_EQ(s.client->text, "ABC");
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->finished[0].reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(DispatcherTest, AnswerWaitsForThePrefillWorkersEndSoThatItsRouteIsWhole) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(s.client->text, "AB");
  EXPECT_FALSE(s.client->ended());
  Say(kP, Step().HandedOff(s.p_key));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->finished[0].route().transport(), "shm");
  EXPECT_TRUE(s.p->cancels.empty());
}

TEST_F(DispatcherTest, AnswerThatWaitsForThePrefillWorkersEndOutlivesThatWorker) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  core_->CloseLink(kP, now_);
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "AB");
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, TokenZeroEndsTheAnswerThoughTheDecodeWorkerHearsOfItFirst) {
  const Split s = StartSplit();
  Say(kD, Step().Fail(s.d_key, Code::kCancelled, "the sender gave up"));
  EXPECT_FALSE(s.client->ended());
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).End(s.p_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "A");
  EXPECT_TRUE(core_->idle());
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

struct Broken {
  std::string name;
  uint32_t first;
  std::vector<uint32_t> ids;
};
class BrokenOrder : public DispatcherTest, public testing::WithParamInterface<Broken> {};

TEST_P(BrokenOrder, IsInternalAndCancelsBothWorkers) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  Say(kD, Step().Tokens(s.d_key, GetParam().first, GetParam().ids));
  EXPECT_EQ(s.client->status().code(), Code::kInternal);
  EXPECT_EQ(s.client->text, "AB");
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
  EXPECT_EQ(s.p->cancels, std::vector<uint64_t>{s.p_key});
}

INSTANTIATE_TEST_SUITE_P(Merge, BrokenOrder,
                         testing::Values(Broken{"gap", 3, {'X'}}, Broken{"repeat", 1, {'B'}},
                                         Broken{"overlap", 1, {'B', 'C'}}, Broken{"empty", 2, {}},
                                         Broken{"too_many", 2, {1, 2, 3, 4, 5, 6}}),
                         [](const auto& test) { return test.param.name; });

TEST_F(DispatcherTest, WorkerCannotSpeakForAnothersSequence) {
  const Split s = StartSplit();
  Say(kD, Step().Tokens(s.p_key, 0, {'X'}).End(s.p_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->ids.empty());
  EXPECT_FALSE(s.client->ended());
}

TEST_F(DispatcherTest, PromptLogprobsComeBehindStartedWithTheirBytesAndInOrder) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.prompt = {'a', 'b', 'c', 'd'};
  request.sampling.set_prompt_logprobs(1);
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  const auto scored = [&](uint32_t first, int count) {
    v1::WorkerMessage message;
    v1::SequencePromptLogprobs* out = message.mutable_step()->add_prompt_logprobs();
    out->set_sequence_key(key);
    out->set_first_index(first);
    for (int i = 0; i < count; ++i) out->add_logprobs()->add_top()->set_token_id('z');
    return message;
  };
  core_->OnMessage(kD, scored(1, 2), now_);
  core_->OnMessage(kD, scored(3, 1), now_);
  EXPECT_TRUE(client->prompt_logprobs.empty());
  Say(kD, Step().Tokens(key, 0, {'x'}).End(key, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(client->status().ok());
  ASSERT_EQ(client->prompt_logprobs.size(), 2u);
  EXPECT_EQ(client->prompt_logprobs[0].first_index(), 1u);
  EXPECT_EQ(client->prompt_logprobs[1].first_index(), 3u);
  EXPECT_EQ(client->prompt_logprobs[1].logprobs(0).token_bytes(), "d");
  EXPECT_EQ(client->prompt_logprobs[1].logprobs(0).top(0).token_bytes(), "z");
}

TEST_F(DispatcherTest, PromptLogprobsOutOfOrderAreInternal) {
  const auto d = AttachDecode();
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.sampling.set_prompt_logprobs(1);
  const auto client = Submit(request);
  v1::WorkerMessage message;
  v1::SequencePromptLogprobs* out = message.mutable_step()->add_prompt_logprobs();
  out->set_sequence_key(d->assigns[0].sequence_key());
  out->set_first_index(2);
  out->add_logprobs();
  core_->OnMessage(kD, message, now_);
  EXPECT_EQ(client->status().code(), Code::kInternal);
}

TEST_F(DispatcherTest, LogprobsTravelWithTheirTokensAndMustBeComplete) {
  ValidatedRequest request = Request();
  request.sampling.set_logprobs(2);
  const Split s = StartSplit(request);
  Step first;
  first.Tokens(s.p_key, 0, {'A'});
  first.last().add_logprobs()->set_logprob(-0.5);
  Say(kP, first);
  EXPECT_EQ(s.client->logprobs, 1);
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  EXPECT_EQ(s.client->status().code(), Code::kInternal);
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

// --- The local path ---

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

// --- Stops and text ---

TEST_F(DispatcherTest, FirstTokenThatIsTheStopHasNoTextAndItsLogprobs) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stops = {"\n"};
  request.sampling.set_logprobs(10);
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  Step first;
  first.Tokens(key, 0, {'\n'});
  first.last().add_logprobs()->set_logprob(-0.5);
  Say(kD, first);
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "");
  EXPECT_EQ(client->ids.size(), 1u);
  EXPECT_EQ(client->logprobs, 1);
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_STOP_TEXT);
}

TEST_F(DispatcherTest, StopSequenceEndsTheStreamAndIsNamed) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stop_sequences = {{'b', 'c'}};
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'a', 'b'}));
  EXPECT_EQ(client->text, "a");
  Say(kD, Step().Tokens(key, 2, {'c', 'd'}));
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "a");
  EXPECT_EQ(client->ids.size(), 3u);
  const v1::Finished& finished = client->finished[0];
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_STOP_SEQUENCE);
  ASSERT_EQ(finished.matched_token_ids_size(), 2);
  EXPECT_EQ(finished.matched_token_ids(1), uint32_t{'c'});
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{key});
}

TEST_F(DispatcherTest, StopTokenHasNoTextUnlessAskedForAndIsNamed) {
  const auto d = AttachDecode();
  for (bool include : {false, true}) {
    ValidatedRequest request = Request(v1::PATH_LOCAL);
    request.stop_tokens = {'!'};
    request.include_stop = include;
    const auto client = Submit(request);
    const uint64_t key = d->assigns.back().sequence_key();
    Say(kD, Step().Tokens(key, 0, {'a', '!'}).End(key, v1::FINISH_REASON_STOP));
    EXPECT_EQ(client->text, include ? "a!" : "a");
    ASSERT_EQ(client->finished.size(), 1u);
    ASSERT_EQ(client->finished[0].matched_token_ids_size(), 1);
    EXPECT_EQ(client->finished[0].matched_token_ids(0), uint32_t{'!'});
  }
}

TEST_F(DispatcherTest, TheFullContextIsAReasonOfItsOwn) {
  const auto d = AttachDecode();
  for (bool asked : {false, true}) {
    ValidatedRequest request = Request(v1::PATH_LOCAL);
    request.ends_at_context = !asked;
    const auto client = Submit(request);
    const uint64_t key = d->assigns.back().sequence_key();
    Say(kD, Step().Tokens(key, 0, {'a'}).End(key, v1::FINISH_REASON_LENGTH));
    ASSERT_EQ(client->finished.size(), 1u);
    EXPECT_EQ(client->finished[0].reason(),
              asked ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_CONTEXT);
  }
}

TEST_F(DispatcherTest, TimeLimitEndsWithWhatThereIs) {
  const auto d = AttachDecode();
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.time_limit = absl::Seconds(2);
  const auto client = Submit(request);
  const auto waiting = Submit(request);  // no token comes
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'a', 'b'}));
  Advance(absl::Milliseconds(1900));
  EXPECT_FALSE(client->ended());
  Advance(absl::Milliseconds(200));
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "ab");
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_TIME);
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(d->cancels.size(), 2u);
}

TEST_F(DispatcherTest, StopTextEndsTheStreamCancelsTheWorkerAndCountsItsTokens) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stops = {"DEFGHIJ"};
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  const TokenId piece = FakeTokenizer::kPieces;  // DEF G HI J KLM
  Say(kD, Step().Tokens(key, 0, {'x', piece}));
  Say(kD, Step().Tokens(key, 2, {piece + 1, piece + 2}));
  EXPECT_EQ(client->text, "x");
  Say(kD, Step().Tokens(key, 4, {piece + 3, piece + 4}));  // one more in the same step
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "x");
  EXPECT_EQ(client->ids.size(), 5u);
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_STOP_TEXT);
  EXPECT_EQ(client->finished[0].matched_stop(), "DEFGHIJ");
  EXPECT_EQ(client->finished[0].usage().completion_tokens(), 5u);
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{key});
  Say(kD, Step().Tokens(key, 6, {'y'}).End(key, v1::FINISH_REASON_LENGTH));  // late, dropped
  EXPECT_EQ(client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, HeldTextIsFlushedWhenTheAnswerEndsOtherwise) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stops = {"as|"};
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'p', 'a', 's', FakeTokenizer::kEnd}));
  EXPECT_EQ(client->text, "p");
  Say(kD, Step().End(key, v1::FINISH_REASON_STOP));
  EXPECT_EQ(client->text, "pas");
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_STOP);
}

TEST_F(DispatcherTest, WithoutATokenizerIdsAloneAreSent) {
  model_ = MakeIdsModel();
  const auto d = AttachDecode();
  const auto client = Submit(Request(v1::PATH_LOCAL));
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'A', 300}).End(key, v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(client->ids, (std::vector<uint32_t>{'A', 300}));
  EXPECT_EQ(client->text, "");
  EXPECT_TRUE(client->status().ok());
}

// --- Cancellation, deadline, slow readers ---

TEST_F(DispatcherTest, CancelInTheQueueStartsNothing) {
  const auto client = Submit(Request());
  core_->Cancel(last_request_, now_);
  EXPECT_EQ(client->status().code(), Code::kCancelled);
  const auto d = AttachDecode();
  EXPECT_TRUE(d->assigns.empty());
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, ClientThatLeftBeforeItsPromptWasTokenizedStartsNothing) {
  const auto d = AttachDecode();
  core_->Cancel(1, now_);  // not known yet
  auto client = std::make_shared<FakeClient>();
  client->health = absl::CancelledError("gone");
  core_->Submit({1, Request(), model_, client, now_, absl::InfiniteFuture()}, now_);
  EXPECT_EQ(client->status().code(), Code::kCancelled);
  EXPECT_TRUE(d->assigns.empty());
}

TEST_F(DispatcherTest, CancelWhileReservingReachesTheDecodeWorkerAlone) {
  const auto p = AttachPrefill();
  const auto d = AttachDecode();
  Submit(Request());
  core_->Cancel(last_request_, now_);
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{d->assigns[0].sequence_key()});
  Accept(kD, d->assigns[0].sequence_key());  // was under way
  EXPECT_TRUE(p->assigns.empty());
  EXPECT_TRUE(p->cancels.empty());
}

TEST_F(DispatcherTest, CancelInPrefillReachesBothWorkers) {
  const Split s = StartSplit();
  core_->Cancel(last_request_, now_);
  EXPECT_EQ(s.client->status().code(), Code::kCancelled);
  EXPECT_EQ(s.p->cancels, std::vector<uint64_t>{s.p_key});
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
}

TEST_F(DispatcherTest, CancelAfterTheHandOffReachesTheDecodeWorkerAlone) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).HandedOff(s.p_key));
  core_->Cancel(last_request_, now_);
  core_->Cancel(last_request_, now_);
  EXPECT_TRUE(s.p->cancels.empty());
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
  EXPECT_EQ(s.client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, DeadlineInTheQueueIsKeptWithoutAnyTraffic) {
  options_.pair_wait = absl::Minutes(1);
  Make();
  const auto client = Submit(Request(), absl::Seconds(2));
  EXPECT_LE(core_->next_wake(), now_ + absl::Seconds(2));
  Advance(absl::Milliseconds(1999));
  EXPECT_FALSE(client->ended());
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(client->status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(client->status().message(), "the deadline passed in the queue");
}

TEST_F(DispatcherTest, DeadlineOfARunningRequestCancelsBothWorkers) {
  options_.lease = absl::Hours(1);
  Make();
  const auto p = AttachPrefill();
  const auto d = AttachDecode();
  const auto client = Submit(Request(), absl::Seconds(2));
  Accept(kD, d->assigns[0].sequence_key());
  Advance(absl::Seconds(2));
  EXPECT_EQ(client->status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(p->cancels.size(), 1u);
  EXPECT_EQ(d->cancels.size(), 1u);
}

TEST_F(DispatcherTest, RequestWhoseDeadlineHasPassedNeverStarts) {
  const auto d = AttachDecode();
  const auto client = Submit(Request(), absl::ZeroDuration());
  EXPECT_EQ(client->status().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(d->assigns.empty());
}

TEST_F(DispatcherTest, ClientThatDoesNotReadIsEndedAndItsSequenceCancelled) {
  const Split s = StartSplit();
  s.client->health = absl::ResourceExhaustedError("reads too slowly");
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  EXPECT_EQ(s.client->status().code(), Code::kResourceExhausted);
  EXPECT_EQ(s.p->cancels.size(), 1u);
  EXPECT_EQ(s.d->cancels.size(), 1u);
}

TEST_F(DispatcherTest, StalledClientIsFoundByTheClockAlone) {
  const Split s = StartSplit();
  s.client->health = absl::ResourceExhaustedError("reads too slowly");
  Advance(absl::Seconds(1));
  EXPECT_EQ(s.client->status().code(), Code::kResourceExhausted);
}

// --- Workers that go ---

TEST_F(DispatcherTest, LostDecodeWorkerEndsItsStreamsOnceAndFreesThePartner) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  core_->CloseLink(kD, now_);
  core_->CloseLink(kD, now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  EXPECT_NE(s.client->status().message().find("decode worker d was lost"), std::string::npos);
  EXPECT_EQ(s.p->cancels, std::vector<uint64_t>{s.p_key});
}

TEST_F(DispatcherTest, LostPrefillWorkerEndsTheStreamBeforeTheHandOff) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  core_->CloseLink(kP, now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
}

TEST_F(DispatcherTest, LostPrefillWorkerDoesNotHurtAfterTheHandOff) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).HandedOff(s.p_key));
  core_->CloseLink(kP, now_);
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}).End(s.d_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "AB");
}

TEST_F(DispatcherTest, DecodedTokensProveTheHandOffWhenThePrefillWorkerIsLostBeforeSayingSo) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  core_->CloseLink(kP, now_);
  EXPECT_FALSE(s.client->ended());
  Say(kD, Step().Tokens(s.d_key, 2, {'C'}).End(s.d_key, v1::FINISH_REASON_STOP));
  EXPECT_EQ(s.client->text, "ABC");
  EXPECT_TRUE(s.client->status().ok());
}

TEST_F(DispatcherTest, TokensOfALostPrefillWorkerThatNeverCameEndTheStream) {
  const Split s = StartSplit();
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  core_->CloseLink(kP, now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
}

TEST_F(DispatcherTest, PrefillWorkerLostBeforeItGotThePromptIsReplaced) {
  AttachPrefill();
  const auto d = AttachDecode();
  const auto client = Submit(Request(v1::PATH_SPLIT));
  core_->CloseLink(kP, now_);
  EXPECT_FALSE(client->ended());
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{d->assigns[0].sequence_key()});
  const auto p2 = AttachPrefill("p2", 7);
  ASSERT_EQ(d->assigns.size(), 2u);
  Accept(kD, d->assigns[1].sequence_key());
  EXPECT_EQ(p2->assigns.size(), 1u);
}

TEST_F(DispatcherTest, SilentWorkerLosesItsLease) {
  const Split s = StartSplit();
  Advance(absl::Seconds(2));
  Beat(kP);
  Advance(absl::Seconds(1));
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  ASSERT_TRUE(s.d->closed.has_value());
  EXPECT_EQ(s.d->closed->code(), Code::kUnavailable);
  EXPECT_FALSE(s.p->closed.has_value());
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));  // too late
  EXPECT_EQ(s.client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, LinkWithoutHelloIsClosedAfterTheLease) {
  auto link = std::make_shared<FakeLink>();
  core_->OpenLink(9, link, now_);
  Advance(absl::Seconds(3));
  EXPECT_TRUE(link->closed.has_value());
}

// --- Attaching ---

TEST_F(DispatcherTest, WelcomeFollowsHelloAndReadsGoOn) {
  const auto d = AttachDecode();
  EXPECT_TRUE(d->welcomed);
  EXPECT_EQ(d->reads, 2);
  EXPECT_TRUE(core_->ready());
}

TEST_F(DispatcherTest, OtherModelIsRefusedNamingBothFingerprints) {
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_model_fingerprint("beef");
  const auto link = Attach(kD, hello);
  ASSERT_TRUE(link->closed.has_value());
  EXPECT_EQ(link->closed->code(), Code::kFailedPrecondition);
  EXPECT_NE(link->closed->message().find("beef"), std::string::npos);
  EXPECT_NE(link->closed->message().find("f00d"), std::string::npos);
  EXPECT_FALSE(core_->ready());
}

TEST_F(DispatcherTest, OtherProtocolVersionIsRefused) {
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_protocol_version(3);
  EXPECT_EQ(Attach(kD, hello)->closed->code(), Code::kFailedPrecondition);
}

TEST_F(DispatcherTest, IdOfALiveWorkerIsTakenAndFreeOnceItIsGone) {
  AttachDecode("d", 5);
  EXPECT_EQ(AttachDecode("d", 6)->closed->code(), Code::kAlreadyExists);
  core_->CloseLink(5, now_);
  EXPECT_FALSE(AttachDecode("d", 7)->closed.has_value());
}

TEST_F(DispatcherTest, FirstMessageMustBeHello) {
  auto link = std::make_shared<FakeLink>();
  core_->OpenLink(9, link, now_);
  Beat(9);
  EXPECT_EQ(link->closed->code(), Code::kInvalidArgument);
}

TEST_F(DispatcherTest, FakeModelIsTakenFromTheFirstWorker) {
  ModelSlot slot(nullptr, "named");
  core_ = std::make_unique<Dispatcher>(DispatcherOptions{}, &slot, &router_metrics_);
  EXPECT_EQ(slot.Get(), nullptr);
  AttachDecode();
  ASSERT_NE(slot.Get(), nullptr);
  EXPECT_EQ(slot.Get()->name, "named");
  EXPECT_EQ(slot.Get()->vocabulary, 512u);
  EXPECT_EQ(slot.Get()->context, 100u);
}

// --- Queue ---

TEST_F(DispatcherTest, WithoutWorkersARequestWaitsAWhileThenNamesTheRole) {
  AttachPrefill();
  const auto client = Submit(Request());
  Advance(absl::Milliseconds(999));
  EXPECT_FALSE(client->ended());
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(client->status().code(), Code::kUnavailable);
  EXPECT_EQ(client->status().message(), "no decode worker is attached");
  EXPECT_TRUE(rpc::RetryAfterOf(client->status()).has_value());
}

TEST_F(DispatcherTest, SplitWithoutAPrefillWorkerWaitsForOneThatRestarts) {
  const auto d = AttachDecode();
  const auto client = Submit(Request(v1::PATH_SPLIT));
  Advance(absl::Milliseconds(500));
  AttachPrefill();
  EXPECT_EQ(d->assigns.size(), 1u);
  Advance(absl::Seconds(1));
  EXPECT_FALSE(client->ended());

  core_->CloseLink(kP, now_);
  const auto second = Submit(Request(v1::PATH_SPLIT));
  Beat(kD);
  Advance(absl::Seconds(1));
  EXPECT_EQ(second->status().message(), "no prefill worker is attached");
}

TEST_F(DispatcherTest, RequestsBeyondTheBoundAreRefusedWithARetryHint) {
  options_.queue = {2, 1000};
  Make();
  Submit(Request());
  Submit(Request());
  const auto third = Submit(Request());
  EXPECT_EQ(third->status().code(), Code::kResourceExhausted);
  EXPECT_NE(third->status().message().find("2 requests wait; the limit is 2"), std::string::npos);
  EXPECT_TRUE(rpc::RetryAfterOf(third->status()).has_value());
}

TEST_F(DispatcherTest, PromptTokensBeyondTheBoundAreRefused) {
  options_.queue = {100, 5};
  Make();
  Submit(Request());
  EXPECT_EQ(Submit(Request())->status().code(), Code::kResourceExhausted);
}

TEST_F(DispatcherTest, FreedRoomGoesToTheNextInLine) {
  const auto d = AttachDecode("d", kD, 1);  // one request of 10 tokens
  const auto first = Submit(Request());
  const auto second = Submit(Request());
  const auto third = Submit(Request());
  ASSERT_EQ(d->assigns.size(), 1u);
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'A'}).End(key, v1::FINISH_REASON_LENGTH));
  ASSERT_EQ(d->assigns.size(), 2u);
  // A cancelled sequence holds its room until the worker says it is gone.
  core_->Cancel(2, now_);
  EXPECT_EQ(d->assigns.size(), 2u);
  Say(kD, Step().Fail(d->assigns[1].sequence_key(), Code::kCancelled, ""));
  EXPECT_EQ(d->assigns.size(), 3u);
  EXPECT_TRUE(first->status().ok());
  EXPECT_FALSE(third->ended());
}

TEST_F(DispatcherTest, RequestThatCanNeverFitIsRefusedAtOnceAndBlocksNobody) {
  const auto d = AttachDecode("d", kD, 2);
  ValidatedRequest big = Request();
  big.max_tokens = 18;  // 21 tokens in all; the pool holds 20
  const auto client = Submit(big);
  EXPECT_EQ(client->status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rpc::FieldOf(client->status()), "stop.max_tokens");
  Submit(Request());
  EXPECT_EQ(d->assigns.size(), 1u);
}

TEST_F(DispatcherTest, EqualRequestIdsDoNotMix) {
  const auto d = AttachDecode();
  const auto first = Submit(Request(v1::PATH_LOCAL));
  const auto second = Submit(Request(v1::PATH_LOCAL));
  const uint64_t a = d->assigns[0].sequence_key(), b = d->assigns[1].sequence_key();
  Say(kD, Step().Tokens(b, 0, {'B'}).Tokens(a, 0, {'A'}));
  core_->Cancel(1, now_);
  EXPECT_EQ(first->text, "A");
  EXPECT_EQ(second->text, "B");
  EXPECT_FALSE(second->ended());
}

// --- Drain, status, gauges ---

TEST_F(DispatcherTest, DrainRefusesNewRequestsAndLetsOthersFinish) {
  const Split s = StartSplit();
  core_->Drain();
  EXPECT_FALSE(core_->ready());
  EXPECT_EQ(Submit(Request())->status().code(), Code::kUnavailable);
  EXPECT_FALSE(core_->idle());
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).End(s.p_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, EndAllEndsEverythingOnce) {
  const Split s = StartSplit();
  core_->EndAll(now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  EXPECT_TRUE(s.p->closed.has_value());
  EXPECT_TRUE(s.d->closed.has_value());
  EXPECT_EQ(s.p->cancels.size(), 1u);
}

TEST_F(DispatcherTest, StatusShowsWorkersAndRequests) {
  const Split s = StartSplit();
  Submit(Request(v1::PATH_LOCAL));
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->set_draining(true);
  beat.mutable_heartbeat()->mutable_load()->set_running_sequences(5);
  core_->OnMessage(kD, beat, now_);
  Submit(Request(v1::PATH_LOCAL));
  v1::GetClusterStatusResponse status;
  core_->FillStatus(&status);
  EXPECT_EQ(status.running_requests(), 2u);
  EXPECT_EQ(status.queued_requests(), 1u);
  ASSERT_EQ(status.workers_size(), 2);
  EXPECT_EQ(status.workers(1).worker_id(), "d");
  EXPECT_TRUE(status.workers(1).draining());
  EXPECT_EQ(status.workers(1).load().running_sequences(), 5u);
}

TEST_F(DispatcherTest, GaugesReturnToZeroWithoutNewTraffic) {
  const Split s = StartSplit();
  EXPECT_NE(metrics_.Text().find("baton_router_requests_running 1"), std::string::npos);
  core_->Cancel(last_request_, now_);
  const std::string text = metrics_.Text();
  EXPECT_NE(text.find("baton_router_requests_running 0"), std::string::npos) << text;
  EXPECT_NE(text.find("baton_router_requests_total{code=\"CANCELLED\"} 1"), std::string::npos);
  EXPECT_NE(text.find("baton_router_workers{role=\"decode\"} 1"), std::string::npos);
  core_->CloseLink(kD, now_);
  EXPECT_NE(metrics_.Text().find("baton_router_workers{role=\"decode\"} 0"), std::string::npos);
}

// --- Several answers ---

TEST_F(DispatcherTest, AChoiceThatAStopTextEndsIsCalledOffOnTheDecodeWorkerAlone) {
  ValidatedRequest request = Request(v1::PATH_SPLIT);
  request.choices = request.choices_made = request.width = 2;
  request.decoding.set_n(2);
  request.stops = {"G"};
  const Split s = StartSplit(request);
  EXPECT_EQ(s.d->assigns[0].decoding().n(), 2u);
  EXPECT_EQ(s.p->assigns[0].decoding().n(), 2u);
  Step first;
  first.Tokens(s.p_key, 0, {'a'}).Tokens(s.p_key, 0, {259});  // "G"
  first.last().set_choice(1);
  Say(kP, first);
  EXPECT_THAT(s.d->choice_cancels, testing::ElementsAre(testing::Pair(s.d_key, 1u)));
  EXPECT_TRUE(s.d->cancels.empty());
  EXPECT_TRUE(s.p->choice_cancels.empty());
  Say(kP, Step().HandedOff(s.p_key));
  Say(kD, Step().Tokens(s.d_key, 1, {'b'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "ab");
  EXPECT_EQ(s.client->other_texts[1], "");
  ASSERT_EQ(s.client->choice_ends.size(), 2u);
  EXPECT_EQ(s.client->choice_ends[0].matched_stop(), "G");
}

TEST_F(DispatcherTest, AnswersThatNoWorkerCanRunTogetherAreRefusedByField) {
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_max_sequences(4);
  Attach(kD, hello);
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.choices = request.choices_made = request.width = 5;
  const auto client = Submit(request);
  EXPECT_EQ(client->status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rpc::FieldOf(client->status()), "decoding.n");
  EXPECT_NE(client->status().message().find("is 5; no decode worker here runs more than 4"),
            std::string::npos);
  // Four fit, and then nobody else does.
  request.choices = request.choices_made = request.width = 4;
  EXPECT_FALSE(Submit(request)->ended());
  Submit(Request(v1::PATH_LOCAL));
  v1::GetClusterStatusResponse status;
  core_->FillStatus(&status);
  EXPECT_EQ(status.queued_requests(), 1u);
  EXPECT_EQ(status.running_requests(), 1u);
}

}  // namespace
}  // namespace baton::router
