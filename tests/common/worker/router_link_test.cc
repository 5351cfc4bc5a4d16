// SPDX-License-Identifier: Apache-2.0
#include "common/worker/router_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "common/rpc/credentials.h"
#include "tests/common/worker/scripted_registry.h"

namespace baton::worker {
namespace {

// A worker without an engine: notes what reaches it.
class RouterLinkTest : public ::testing::Test, public AssignSink {
 protected:
  void TearDown() override {
    if (link_ != nullptr) link_->Stop(absl::ZeroDuration());
  }

  void StartLink(int port) {
    RouterLink::Hooks hooks;
    hooks.sink = this;
    hooks.hello = [] {
      v1::Hello hello;
      hello.set_protocol_version(2);
      hello.mutable_info()->set_worker_id("w1");
      return hello;
    };
    hooks.heartbeat = [this](uint64_t /*owner*/) {
      absl::MutexLock lock(&mutex_);
      v1::Heartbeat heartbeat;
      heartbeat.mutable_load()->set_running_sequences(running_);
      return heartbeat;
    };
    hooks.opened = [this](std::shared_ptr<AttachStream> stream) {
      absl::MutexLock lock(&mutex_);
      stream_ = std::move(stream);
    };
    hooks.attached = [this](uint64_t) {
      absl::MutexLock lock(&mutex_);
      ++attached_;
    };
    hooks.closed = [this](uint64_t owner) {
      absl::MutexLock lock(&mutex_);
      closed_.push_back(owner);
    };
    auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                             grpc::InsecureChannelCredentials(),
                                             rpc::DefaultChannelArguments());
    link_ = std::make_unique<RouterLink>("router", v1::Registry::NewStub(channel), hooks);
    link_->Start();
  }

  absl::Status Assign(uint64_t owner, const v1::Assign& assign) override {
    absl::MutexLock lock(&mutex_);
    assigned_.push_back({.owner = owner, .key = assign.sequence_key()});
    return assign.max_tokens() == 0 ? absl::InvalidArgumentError("max_tokens: must be at least 1")
                                    : absl::OkStatus();
  }

  void Cancel(engine::SequenceRef ref, std::optional<uint32_t> /*choice*/) override {
    absl::MutexLock lock(&mutex_);
    cancelled_.push_back(ref);
  }

  bool Eventually(const std::function<bool()>& condition) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&condition), absl::Seconds(5));
  }

  std::shared_ptr<AttachStream> stream() {
    absl::MutexLock lock(&mutex_);
    return stream_;
  }

  static v1::RouterMessage MakeAssign(uint64_t key, uint32_t max_tokens) {
    v1::RouterMessage message;
    message.mutable_assign()->set_sequence_key(key);
    message.mutable_assign()->set_max_tokens(max_tokens);
    return message;
  }

  static bool IsStep(const v1::WorkerMessage& message) { return message.has_step(); }

  absl::Mutex mutex_;
  std::shared_ptr<AttachStream> stream_ ABSL_GUARDED_BY(mutex_);
  int attached_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> closed_ ABSL_GUARDED_BY(mutex_);
  std::vector<engine::SequenceRef> assigned_ ABSL_GUARDED_BY(mutex_);
  std::vector<engine::SequenceRef> cancelled_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RouterLink> link_;
};

TEST_F(RouterLinkTest, SaysHelloThenBeats) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  const auto hello = registry->Await([](const auto& message) { return message.has_hello(); });
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->hello().info().worker_id(), "w1");
  for (int beat = 0; beat < 3; ++beat) {
    EXPECT_TRUE(registry->Await([](const auto& message) { return message.has_heartbeat(); }));
  }
}

TEST_F(RouterLinkTest, AcceptedComesBeforeTheSequencesTokens) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  ASSERT_TRUE(registry->Send(MakeAssign(7, 1)));
  ASSERT_TRUE(Eventually([this] { return assigned_.size() == 1; }));
  v1::StepOutput step;
  step.add_tokens()->set_sequence_key(7);
  step.add_ends()->set_sequence_key(7);
  stream()->Push(step);
  const auto first = registry->Await(
      [](const auto& message) { return message.has_accepted() || message.has_step(); });
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->accepted().sequence_key(), 7);
  const auto second = registry->Await(IsStep);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->step().tokens(0).sequence_key(), 7);
}

TEST_F(RouterLinkTest, RefusedAssignEndsWithItsStatus) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  registry->Send(MakeAssign(8, 0));
  const auto answer = registry->Await(
      [](const auto& message) { return message.has_accepted() || message.has_step(); });
  ASSERT_TRUE(answer.has_value());
  ASSERT_TRUE(answer->has_step());
  EXPECT_EQ(answer->step().ends(0).sequence_key(), 8);
  EXPECT_EQ(answer->step().ends(0).code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RouterLinkTest, KeyInUseIsNotAssignedTwice) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  registry->Send(MakeAssign(9, 1));
  registry->Send(MakeAssign(9, 1));
  registry->Send(MakeAssign(10, 1));
  ASSERT_TRUE(Eventually([this] { return !assigned_.empty() && assigned_.back().key == 10; }));
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(assigned_.size(), 2);
}

TEST_F(RouterLinkTest, EmptyAndForeignMessagesAreHarmless) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  registry->Send(v1::RouterMessage());
  v1::RouterMessage cancel;
  cancel.mutable_cancel()->set_sequence_key(404);
  registry->Send(cancel);
  v1::RouterMessage welcome;
  welcome.mutable_welcome();
  registry->Send(welcome);
  ASSERT_TRUE(Eventually([this] { return cancelled_.size() == 1; }));
  registry->Send(MakeAssign(11, 1));
  EXPECT_TRUE(Eventually([this] { return assigned_.size() == 1; }));
}

TEST_F(RouterLinkTest, BrokenStreamIsClosedAndReopenedUnderANewOwner) {
  auto registry = ScriptedRegistry::Start();
  const int port = registry->port();
  StartLink(port);
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  const uint64_t first = stream()->owner();
  registry.reset();
  ASSERT_TRUE(Eventually([this] { return closed_.size() == 1; }));
  {
    absl::MutexLock lock(&mutex_);
    EXPECT_EQ(closed_[0], first);
  }
  registry = ScriptedRegistry::Start(port);
  ASSERT_NE(registry, nullptr);
  ASSERT_TRUE(Eventually([this] { return attached_ == 2; }));
  EXPECT_NE(stream()->owner(), first);
}

TEST_F(RouterLinkTest, RefusedWorkerAsksAgainSlowly) {
  auto registry = ScriptedRegistry::Start();
  registry->RefuseWith(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another model"));
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return closed_.size() == 1; }));
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(registry->attached(), 1);
}

TEST_F(RouterLinkTest, RouterThatDoesNotReadIsBrokenOffBeforeMemoryFills) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  registry->StopReading();
  const std::shared_ptr<AttachStream> held = stream();
  v1::StepOutput step;
  for (int i = 0; i < 1000; ++i) {
    v1::SequenceTokens* tokens = step.add_tokens();
    for (int j = 0; j < 20; ++j) tokens->add_token_ids(1u << 30);
  }
  for (int i = 0; i < 200; ++i) held->Push(step);  // 20 MB
  ASSERT_TRUE(Eventually([this] { return closed_.size() == 1; }));
  EXPECT_EQ(held->state().status.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RouterLinkTest, StopWritesWhatWaits) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  for (uint64_t key = 1; key <= 100; ++key) {
    v1::StepOutput step;
    step.add_ends()->set_sequence_key(key);
    stream()->Push(step);
  }
  link_->Stop(absl::Seconds(2));
  EXPECT_TRUE(registry->Await([](const v1::WorkerMessage& message) {
    const int ends = message.step().ends_size();
    return ends > 0 && message.step().ends(ends - 1).sequence_key() == 100;
  }));
}

TEST_F(RouterLinkTest, StopWithoutARouterReturnsAtOnce) {
  StartLink(1);  // nobody listens there
  const absl::Time start = absl::Now();
  link_->Stop(absl::Seconds(2));
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
}

TEST_F(RouterLinkTest, ChangedLoadIsToldBeforeTheNextBeat) {
  auto registry = ScriptedRegistry::Start();
  StartLink(registry->port());
  ASSERT_TRUE(Eventually([this] { return attached_ == 1; }));
  {
    absl::MutexLock lock(&mutex_);
    running_ = 5;
  }
  link_->LoadChanged();
  EXPECT_TRUE(registry->Await([](const v1::WorkerMessage& message) {
    return message.heartbeat().load().running_sequences() == 5;
  }));
}

}  // namespace
}  // namespace baton::worker
