// SPDX-License-Identifier: Apache-2.0
#include "common/worker/router_link.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/log.h"

namespace baton::worker {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
constexpr absl::Duration kRefusedPause = absl::Seconds(5);
// Collects what one step changes, and bounds the rate.
constexpr absl::Duration kEarlyHeartbeat = absl::Milliseconds(20);
constexpr absl::Duration kUnreachableAfter = absl::Seconds(5);

uint64_t NextOwner() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

absl::Duration HeartbeatInterval(const v1::Welcome& welcome) {
  const uint32_t wanted = welcome.heartbeat_ms() == 0 ? 250 : welcome.heartbeat_ms();
  return absl::Milliseconds(std::clamp<uint32_t>(wanted, 20, 10000));
}

bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInvalidArgument:
      return true;
    default:
      return false;
  }
}

const char* WhatToChange(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return "give router and workers the same --model and the same version";
    case absl::StatusCode::kAlreadyExists:
      return "another live worker has this --worker-id";
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return "check the TLS flags of both";
    case absl::StatusCode::kUnimplemented:
      return "is --router the address of a baton-router of this version?";
    default:
      return "";
  }
}

}  // namespace

RouterLink::RouterLink(std::string address, std::unique_ptr<v1::Registry::Stub> stub, Hooks hooks)
    : address_(std::move(address)), stub_(std::move(stub)), hooks_(std::move(hooks)) {}

RouterLink::~RouterLink() { Stop(absl::ZeroDuration()); }

void RouterLink::Start() {
  thread_ = std::thread([this] { Run(); });
}

void RouterLink::LoadChanged() {
  absl::MutexLock lock(&mutex_);
  load_changed_ = true;
  wake_ = true;
}

void RouterLink::Wake() {
  absl::MutexLock lock(&mutex_);
  wake_ = true;
}

void RouterLink::Stop(absl::Duration patience) {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    wake_ = true;
    stop_by_ = absl::Now() + patience;
  }
  if (thread_.joinable()) thread_.join();
}

bool RouterLink::WaitUntil(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithDeadline(absl::Condition(&wake_), deadline);
  wake_ = false;
  return stopping_;
}

bool RouterLink::Stopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void RouterLink::Run() {
  while (!Stopping()) {
    const std::shared_ptr<AttachStream> stream =
        AttachStream::Make(NextOwner(), hooks_.sink, [this] { Wake(); });
    // Known before it can bring work, so that no answer lacks its stream.
    hooks_.opened(stream);
    stream->Start(stub_.get(), hooks_.hello());
    const AttachStream::State last = Serve(*stream);
    hooks_.closed(stream->owner());
    const absl::Time again = absl::Now() + PauseAfter(last);
    while (absl::Now() < again && !Stopping()) WaitUntil(again);
  }
}

AttachStream::State RouterLink::Serve(AttachStream& stream) {
  const absl::Time opened = absl::Now();
  absl::Time next_heartbeat = absl::InfiniteFuture();
  absl::Time last_heartbeat = absl::InfinitePast();
  bool attached = false, told_unreachable = false;
  for (;;) {
    AttachStream::State state = stream.state();
    if (state.phase == AttachStream::Phase::kDone) return state;
    const absl::Time now = absl::Now();
    if (state.phase == AttachStream::Phase::kAttached && !attached) {
      attached = true;
      LogInfo("attached to router",
              {{"router", address_}, {"router_id", state.welcome.router_id()}});
      last_logged_.clear();
      hooks_.attached(stream.owner());
      next_heartbeat = now;
    }
    if (!attached && !told_unreachable && now - opened > kUnreachableAfter) {
      told_unreachable = true;
      LogWarning("router does not answer, still trying", {{"router", address_}});
    }
    if (now >= next_heartbeat) {
      stream.SetHeartbeat(hooks_.heartbeat(stream.owner()));
      last_heartbeat = now;
      next_heartbeat = now + HeartbeatInterval(state.welcome);
    }
    stream.CheckStalled(now);
    if (WaitUntil(std::min(next_heartbeat, now + absl::Seconds(1)))) {
      return Close(stream, attached);
    }
    if (TakeLoadChanged() && attached) {
      next_heartbeat =
          std::min(next_heartbeat, std::max(absl::Now(), last_heartbeat) + kEarlyHeartbeat);
    }
  }
}

AttachStream::State RouterLink::Close(AttachStream& stream, bool attached) {
  absl::Time deadline;
  {
    absl::MutexLock lock(&mutex_);
    deadline = attached ? stop_by_ : absl::InfinitePast();
  }
  if (attached) stream.Finish();
  for (;;) {
    AttachStream::State state = stream.state();
    if (state.phase == AttachStream::Phase::kDone) return state;
    if (absl::Now() >= deadline) {
      // gRPC ends a cancelled call at once, whatever the peer does.
      stream.Break(absl::CancelledError("the worker stops"));
      deadline = absl::InfiniteFuture();
    }
    WaitUntil(deadline);
  }
}

bool RouterLink::TakeLoadChanged() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(load_changed_, false);
}

absl::Duration RouterLink::PauseAfter(const AttachStream::State& last) {
  const bool was_attached = last.welcome.heartbeat_ms() != 0 || !last.welcome.router_id().empty();
  LogEnd(last.status);
  if (was_attached) pause_ = absl::ZeroDuration();
  if (IsRefusal(last.status)) {
    pause_ = kRefusedPause;
  } else if (last.status.code() == absl::StatusCode::kAlreadyExists) {
    // A predecessor of the same name may still have its lease.
    pause_ = std::clamp(pause_ * 2, absl::Milliseconds(500), kLongestPause);
  } else {
    pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
  }
  return pause_ * absl::Uniform(random_, 0.75, 1.0);
}

void RouterLink::LogEnd(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
  }
  const std::string text = status.ToString();
  if (text == last_logged_) return;
  last_logged_ = text;
  const std::string hint = WhatToChange(status);
  if (hint.empty()) {
    LogWarning("not attached to router", {{"router", address_}, {"reason", text}});
  } else {
    LogWarning("not attached to router", {{"router", address_}, {"reason", text}, {"hint", hint}});
  }
}

}  // namespace baton::worker
