// SPDX-License-Identifier: Apache-2.0
#include "common/worker/attach_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/status.h"
#include "common/worker/step_messages.h"

namespace baton::worker {
namespace {

constexpr size_t kMostPendingBytes = 8 << 20;
constexpr absl::Duration kWelcomeTimeout = absl::Seconds(5);
constexpr absl::Duration kWriteTimeout = absl::Seconds(10);

}  // namespace

std::shared_ptr<AttachStream> AttachStream::Make(uint64_t owner, AssignSink* sink,
                                                 std::function<void()> changed) {
  std::shared_ptr<AttachStream> stream(new AttachStream(owner, sink, std::move(changed)));
  absl::MutexLock lock(&stream->mutex_);
  stream->self_ = stream;
  return stream;
}

AttachStream::AttachStream(uint64_t owner, AssignSink* sink, std::function<void()> changed)
    : owner_(owner), sink_(sink), changed_(std::move(changed)) {}

void AttachStream::Start(v1::Registry::Stub* stub, v1::Hello hello) {
  rpc::KeepCallbackThreads();
  context_.set_wait_for_ready(true);
  stub->async()->Attach(&context_, this);
  // Writes start on the engine's thread; the hold keeps OnDone from coming in
  // between. It is given back when reading has ended.
  AddHold();
  StartRead(&incoming_);
  {
    absl::MutexLock lock(&mutex_);
    outbox_.AddHello(std::move(hello));
    WriteNextLocked();
  }
  StartCall();
}

AttachStream::State AttachStream::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

void AttachStream::Push(v1::StepOutput step) {
  absl::MutexLock lock(&mutex_);
  for (const v1::SequenceEnd& end : step.ends()) live_.erase(end.sequence_key());
  if (read_closed_ || broken_) return;
  outbox_.AddStep(std::move(step));
  if (outbox_.bytes() > kMostPendingBytes) {
    BreakLocked(absl::ResourceExhaustedError(
        absl::StrCat("the router did not read while ", outbox_.bytes(), " bytes piled up")));
    return;
  }
  WriteNextLocked();
}

void AttachStream::SetHeartbeat(v1::Heartbeat heartbeat) {
  absl::MutexLock lock(&mutex_);
  outbox_.SetHeartbeat(std::move(heartbeat));
  WriteNextLocked();
}

void AttachStream::CheckStalled(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (state_.phase == Phase::kGreeted && now - waiting_since_ > kWelcomeTimeout) {
    BreakLocked(absl::DeadlineExceededError("the router sent no Welcome"));
  } else if (state_.phase == Phase::kAttached && writing_ && now - waiting_since_ > kWriteTimeout) {
    BreakLocked(absl::DeadlineExceededError("the router does not read"));
  }
}

void AttachStream::Finish() {
  absl::MutexLock lock(&mutex_);
  finishing_ = true;
  WriteNextLocked();
}

void AttachStream::Break(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  BreakLocked(reason);
}

void AttachStream::BreakLocked(const absl::Status& reason) {
  if (broken_) return;
  broken_ = reason;
  context_.TryCancel();
}

void AttachStream::WriteNextLocked() {
  if (writing_ || writes_done_ || read_closed_ || broken_) return;
  if (outbox_.Next(&outgoing_)) {
    writing_ = true;
    waiting_since_ = absl::Now();
    StartWrite(&outgoing_);
  } else if (finishing_) {
    writes_done_ = true;
    StartWritesDone();
  }
}

void AttachStream::OnWriteDone(bool ok) {
  bool greeted = false;
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) return;  // reading ends as well and says why
    if (state_.phase == Phase::kConnecting) {
      state_.phase = Phase::kGreeted;
      waiting_since_ = absl::Now();
      greeted = true;
    }
    WriteNextLocked();
  }
  if (greeted) changed_();
}

void AttachStream::OnReadDone(bool ok) {
  if (ok) {
    Handle(incoming_);
    StartRead(&incoming_);
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    read_closed_ = true;
  }
  RemoveHold();
}

void AttachStream::OnDone(const grpc::Status& status) {
  std::shared_ptr<AttachStream> self;
  {
    absl::MutexLock lock(&mutex_);
    state_.phase = Phase::kDone;
    state_.status = broken_ ? *broken_ : rpc::FromGrpc(status);
    self = std::move(self_);
  }
  changed_();
}

void AttachStream::Handle(const v1::RouterMessage& message) {
  switch (message.message_case()) {
    case v1::RouterMessage::kWelcome:
      return HandleWelcome(message.welcome());
    case v1::RouterMessage::kAssign:
      return HandleAssign(message.assign());
    case v1::RouterMessage::kCancel: {
      const v1::CancelSequence& cancel = message.cancel();
      std::optional<uint32_t> choice;
      if (cancel.has_choice()) choice = cancel.choice();
      return sink_->Cancel({.owner = owner_, .key = cancel.sequence_key()}, choice);
    }
    case v1::RouterMessage::MESSAGE_NOT_SET:
      break;
  }
  LogDebug("unknown message from the router ignored");
}

void AttachStream::HandleWelcome(const v1::Welcome& welcome) {
  {
    absl::MutexLock lock(&mutex_);
    if (state_.phase >= Phase::kAttached) return;
    state_.phase = Phase::kAttached;
    state_.welcome = welcome;
  }
  changed_();
}

void AttachStream::HandleAssign(const v1::Assign& assign) {
  const uint64_t key = assign.sequence_key();
  // Held throughout: the sequence's end, which comes on the engine's thread,
  // must not overtake its Accepted.
  absl::MutexLock lock(&mutex_);
  if (state_.phase != Phase::kAttached) {
    return BreakLocked(absl::InternalError("the router sent work before its Welcome"));
  }
  if (!live_.insert(key).second) {
    LogWarning("router assigned a sequence key that is in use, ignored", {{"sequence_key", key}});
    return;
  }
  const absl::Status status = sink_->Assign(owner_, assign);
  if (status.ok()) {
    outbox_.AddAccepted(key);
  } else {
    live_.erase(key);
    v1::StepOutput refusal;
    *refusal.add_ends() = RefusedEnd(key, status);
    outbox_.AddStep(std::move(refusal));
  }
  WriteNextLocked();
}

}  // namespace baton::worker
