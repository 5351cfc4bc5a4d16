// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/handoff_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "absl/time/clock.h"
#include "common/model/fake/fake_model.h"
#include "tests/common/worker/recording_listener.h"

namespace baton::prefill_worker {
namespace {

using worker::AwaitAllFree;

// The transport, played by the test: what was asked of it, and when it answers.
struct Wire {
  absl::Mutex mutex;
  bool answers ABSL_GUARDED_BY(mutex) = true;  // at once with `answer`
  absl::Status answer ABSL_GUARDED_BY(mutex);
  std::vector<transport::Endpoint> endpoints ABSL_GUARDED_BY(mutex);
  std::vector<transport::PutRange> puts ABSL_GUARDED_BY(mutex);
  std::vector<transport::Done> held ABSL_GUARDED_BY(mutex);
  transport::Done granted ABSL_GUARDED_BY(mutex);
  std::optional<transport::CommitState> commit ABSL_GUARDED_BY(mutex);
  int aborts ABSL_GUARDED_BY(mutex) = 0;

  // Answers or holds the call.
  void Call(transport::Done done) {
    absl::Status status;
    {
      absl::MutexLock lock(&mutex);
      if (!answers) return held.push_back(std::move(done));
      status = answer;
    }
    done(status);
  }
  void ReleaseAll(const absl::Status& status) {
    std::vector<transport::Done> calls;
    {
      absl::MutexLock lock(&mutex);
      calls.swap(held);
    }
    for (transport::Done& call : calls) call(status);
  }
  bool Await(const std::function<bool()>& condition) {
    absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(&condition), absl::Seconds(5));
  }
};

class WireWriter final : public transport::KvWriter {
 public:
  explicit WireWriter(Wire* wire) : wire_(wire) {}
  void Put(const transport::PutRange& range, transport::PutSources sources,
           transport::Done done) override {
    for (const auto& source : sources.spans) bytes_ += source.size();
    {
      absl::MutexLock lock(&wire_->mutex);
      wire_->puts.push_back(range);
    }
    wire_->Call(std::move(done));
  }
  void Commit(const transport::CommitState& state, transport::Done done) override {
    {
      absl::MutexLock lock(&wire_->mutex);
      wire_->commit = state;
    }
    wire_->Call(std::move(done));
  }
  void Abort(const absl::Status& /*reason*/) override {
    absl::MutexLock lock(&wire_->mutex);
    ++wire_->aborts;
  }
  std::string transport() const override { return "wire"; }
  uint64_t bytes() const override { return bytes_; }

 private:
  Wire* const wire_;
  uint64_t bytes_ = 0;
};

class WireSender final : public transport::KvSender {
 public:
  explicit WireSender(Wire* wire) : wire_(wire) {}
  std::unique_ptr<transport::KvWriter> Open(const std::vector<transport::Endpoint>& endpoints,
                                            const transport::ReserveRequest& /*request*/,
                                            absl::Time /*deadline*/,
                                            transport::Done granted) override {
    absl::MutexLock lock(&wire_->mutex);
    wire_->endpoints = endpoints;
    wire_->granted = std::move(granted);
    return std::make_unique<WireWriter>(wire_);
  }

 private:
  Wire* const wire_;
};

class HandoffSenderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.transports = {"tcp"};
    auto fake = model::MakeFakeModel(fake_);
    ASSERT_TRUE(fake.ok());
    auto prepared = sender_.Prepare(
        {.options = &options_, .layout = (*fake)->kv_layout(), .metrics = &metrics_, .labels = {}});
    ASSERT_TRUE(prepared.ok());
    auto engine = engine::Engine::Create(std::move(*fake), {.kv_blocks = 64, .chunk_tokens = 64},
                                         &listener_, *prepared);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ASSERT_TRUE(sender_.Start(engine_.get()).ok());
  }

  void TearDown() override {
    if (engine_ != nullptr) {
      EXPECT_TRUE(engine_->CheckIntegrity().ok());
    }
  }

  // Gives the engine a prompt of `tokens` tokens.
  void Submit(uint32_t tokens, std::vector<TokenId> stop = {}) {
    engine::SequenceSpec spec;
    spec.ref = kRef;
    spec.role = engine::Role::kPrefill;
    spec.prompt.resize(tokens);
    std::iota(spec.prompt.begin(), spec.prompt.end(), 10);
    spec.max_tokens = 8;
    spec.stop_tokens = std::move(stop);
    spec.handoff_key = std::string(16, 'k');
    prompt_ = spec.prompt;
    v1::Assign assign;
    v1::HandoffEndpoint* endpoint = assign.add_handoff_endpoints();
    endpoint->set_transport("tcp");
    endpoint->set_address("127.0.0.1:9");
    ASSERT_TRUE(sender_.Submit(std::move(spec), assign).ok());
  }

  void Hold() {
    absl::MutexLock lock(&wire_.mutex);
    wire_.answers = false;
  }

  static constexpr engine::SequenceRef kRef{.owner = 1, .key = 7};

  Wire wire_;
  worker::Options options_;
  metrics::Metrics metrics_;
  model::FakeOptions fake_;
  std::vector<TokenId> prompt_;
  HandoffSender sender_{[this](const transport::SenderOptions&, const kv::KvLayout&) {
    return std::make_unique<WireSender>(&wire_);
  }};
  worker::RecordingListener listener_{&sender_};
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(HandoffSenderTest, WholePromptIsPutOnceAndThenCommitted) {
  Submit(150);  // chunks of 64, 64 and 22 tokens: 5 blocks
  const auto end = listener_.AwaitEnd(kRef);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->status.ok()) << end->status;
  EXPECT_TRUE(end->handed_off);
  EXPECT_EQ(end->transport, "wire");
  EXPECT_EQ(end->handoff_bytes, 5 * engine_->arena().layout().BlockBytes());
  const TokenId first = model::FakeReference(fake_, prompt_, 1)[0];
  EXPECT_THAT(listener_.Tokens(kRef), ::testing::ElementsAre(first));
  EXPECT_TRUE(AwaitAllFree(*engine_));

  absl::MutexLock lock(&wire_.mutex);
  EXPECT_EQ(wire_.endpoints.size(), 1);
  ASSERT_TRUE(wire_.commit.has_value());
  EXPECT_THAT(wire_.commit->first_tokens, ::testing::ElementsAre(first));
  EXPECT_EQ(wire_.commit->drawn, 1);
  std::map<std::pair<uint32_t, uint32_t>, int> covered;
  for (const transport::PutRange& range : wire_.puts) {
    for (uint32_t block = range.block_begin; block < range.block_end; ++block) {
      for (uint32_t layer = range.layer_begin; layer < range.layer_end; ++layer) {
        ++covered[{block, layer}];
      }
    }
  }
  EXPECT_EQ(covered.size(), 5 * engine_->arena().layout().layers);
  for (const auto& [slice, times] : covered) EXPECT_EQ(times, 1);
}

TEST_F(HandoffSenderTest, BlocksOfCancelledSequenceStayUntilTheWireLetsGo) {
  Hold();
  Submit(64);
  ASSERT_TRUE(wire_.Await([this] { return wire_.commit.has_value(); }));
  engine_->Cancel(kRef, absl::CancelledError("gone"));
  ASSERT_TRUE(wire_.Await([this] { return wire_.aborts == 1; }));
  EXPECT_FALSE(listener_.AwaitEnd(kRef, absl::Milliseconds(50)).has_value());
  EXPECT_TRUE(worker::AwaitLoad(
      *engine_, [](const engine::Load& load) { return load.kv_blocks_transfers == 2; }));
  wire_.ReleaseAll(absl::CancelledError("aborted"));
  const auto end = listener_.AwaitEnd(kRef);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status, absl::CancelledError("gone"));
  EXPECT_TRUE(AwaitAllFree(*engine_));
}

TEST_F(HandoffSenderTest, LostPeerEndsTheSequenceOnceWithItsStatus) {
  {
    absl::MutexLock lock(&wire_.mutex);
    wire_.answer = absl::UnavailableError("the peer is gone");
  }
  Submit(150);
  const auto end = listener_.AwaitEnd(kRef);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(end->handed_off);
  EXPECT_TRUE(AwaitAllFree(*engine_));
  EXPECT_EQ(listener_.CountEnds(kRef), 1);
}

TEST_F(HandoffSenderTest, RefusedReservationEndsTheSequence) {
  Hold();
  Submit(64);
  // One put and the commit.
  ASSERT_TRUE(wire_.Await([this] { return wire_.held.size() == 2; }));
  transport::Done granted;
  {
    absl::MutexLock lock(&wire_.mutex);
    granted = wire_.granted;
  }
  const absl::Status refusal = absl::NotFoundError("no sequence waits for this hand-off");
  granted(refusal);
  wire_.ReleaseAll(refusal);
  const auto end = listener_.AwaitEnd(kRef);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status, refusal);
  EXPECT_TRUE(AwaitAllFree(*engine_));
}

TEST_F(HandoffSenderTest, FirstTokenThatEndsTheSequenceHandsNothingOver) {
  std::vector<TokenId> prompt(64);
  std::iota(prompt.begin(), prompt.end(), 10);
  Submit(64, model::FakeReference(fake_, prompt, 1));
  const auto end = listener_.AwaitEnd(kRef);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->status.ok()) << end->status;
  EXPECT_EQ(end->reason, engine::FinishReason::kStop);
  EXPECT_FALSE(end->handed_off);
  EXPECT_TRUE(AwaitAllFree(*engine_));
  absl::MutexLock lock(&wire_.mutex);
  EXPECT_FALSE(wire_.commit.has_value());
  EXPECT_EQ(wire_.aborts, 1);
}

}  // namespace
}  // namespace baton::prefill_worker
