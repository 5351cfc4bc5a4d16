// SPDX-License-Identifier: Apache-2.0
#include "common/transport/nccl/nccl_channel.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace baton::transport {
namespace {

// Large enough that a transfer's fixed costs are small beside it, small enough that
// the copies on both sides run beside the next.
constexpr size_t kNcclFrameBytes = 1 << 20;
// What failed so often in a row will fail again.
constexpr uint32_t kMostFailures = 4;
// A communicator that lasted so long is no failure in a row.
constexpr std::chrono::minutes kLasting{1};
// A stall is looked for so often while something is on its way.
constexpr absl::Duration kNcclStallInterval = absl::Milliseconds(50);

}  // namespace

NcclChannel::NcclChannel(std::shared_ptr<NcclRuntime> runtime, std::shared_ptr<void> place,
                         uint64_t ring_bytes, const ChannelContext& context)
    : RingChannel(ring_bytes, kNcclFrameBytes, context.loop),
      runtime_(std::move(runtime)),
      place_(std::move(place)),
      ring_(std::make_shared<NcclHostRing>(runtime_.get(), ring_bytes)),
      loop_(context.loop),
      stall_limit_(context.options.stall_limit),
      rebuild_pause_(context.options.rebuild_pause),
      lost_(context.lost),
      send_(context.send),
      room_(context.room) {}

NcclChannel::~NcclChannel() {
  *alive_ = false;
  for (const uint64_t timer : {stall_timer_, rebuild_timer_, ending_timer_}) loop_->Cancel(timer);
}

void NcclChannel::Welcomed(const baton::v1::HandoffWelcome& /*welcome*/, Done ready) {
  ready_ = std::move(ready);
  Begin();
}

void NcclChannel::Begin() {
  const uint32_t attempt = ++attempt_;
  state_ = State::kOpening;
  named_ = joined_ = tried_ = false;
  // What a communicator says when another has taken its place is of no interest.
  const auto current = [this, attempt] { return attempt == attempt_ && line_ != nullptr; };
  NcclEvents events;
  events.named = [this, current](const NcclUniqueId& id) {
    if (current()) OnNamed(id);
  };
  events.up = [this, current](std::byte* ring) {
    if (!current()) return;
    SetRing(ring);
    joined_ = true;
    OpenIfBoth();
  };
  events.moved = [](uint64_t) {};  // the receiver's word counts
  events.lost = [this, current](const absl::Status& reason) {
    if (current()) Lose(reason);
  };
  events.closed = [this](bool clean) { OnClosed(clean); };
  line_ = std::make_unique<NcclLine>(runtime_, loop_,
                                     NcclPair::Plan{NcclRank::kSender, ring_, stall_limit_, place_},
                                     std::move(events));
  begun_.assign(1, EventLoop::Clock::now());
  line_->StartNamed();
  ArmStallTimer();
}

void NcclChannel::OnNamed(const NcclUniqueId& id) {
  named_ = true;
  baton::v1::HandoffFrame frame;
  frame.mutable_nccl_path()->set_communicator(attempt_);
  frame.mutable_nccl_path()->set_unique_id(id.bytes, kNcclIdBytes);
  send_(frame);
}

void NcclChannel::OpenIfBoth() {
  if (!joined_ || !tried_ || state_ != State::kOpening) return;
  state_ = State::kUp;
  up_since_ = EventLoop::Clock::now();
  LogInfo("nccl connected", {{"communicator", attempt_}});
  if (const Done ready = std::exchange(ready_, nullptr)) {
    Later([ready] { ready(absl::OkStatus()); });
  }
}

bool NcclChannel::SendBytes(const baton::v1::Put& put) {
  if (state_ != State::kUp) return false;
  baton::v1::HandoffFrame frame;
  baton::v1::NcclExpect& expect = *frame.mutable_nccl_expect();
  expect.set_communicator(attempt_);
  expect.set_ring_offset(put.ring_offset());
  expect.set_bytes(put.bytes());
  send_(frame);
  line_->Move(put.ring_offset(), put.bytes());
  begun_.push_back(EventLoop::Clock::now());
  ArmStallTimer();
  return true;
}

absl::Status NcclChannel::Arrived(const baton::v1::Arrived& arrived) {
  if (arrived.communicator() > attempt_) {
    return absl::InvalidArgumentError("arrived, by a communicator that is not there");
  }
  if (arrived.communicator() != attempt_ || line_ == nullptr) return absl::OkStatus();
  if (arrived.puts() > begun_.size()) {
    return absl::InvalidArgumentError("the receiver has more puts than it was sent");
  }
  for (uint64_t i = 0; i < arrived.puts(); ++i) {
    begun_.pop_front();
    if (std::exchange(tried_, true)) {
      PutArrived();
    } else {
      OpenIfBoth();
    }
  }
  return absl::OkStatus();
}

absl::Status NcclChannel::OnPath(const baton::v1::NcclPath& path) {
  if (path.communicator() > attempt_ || !path.unique_id().empty()) {
    return absl::InvalidArgumentError("a communicator that is not there");
  }
  if (path.communicator() == attempt_ && line_ != nullptr) {
    Lose(absl::UnavailableError(absl::StrCat("the receiver says: ", path.lost())));
  }
  return absl::OkStatus();
}

void NcclChannel::Lose(const absl::Status& reason) {
  if (line_ == nullptr) return;
  const bool lasted = state_ == State::kUp && EventLoop::Clock::now() - up_since_ > kLasting;
  failures_ = lasted ? 1 : failures_ + 1;
  state_ = State::kDown;
  begun_.clear();
  ending_ = std::move(line_);
  ending_->Close();
  if (named_) {  // the receiver has heard of it
    baton::v1::HandoffFrame frame;
    frame.mutable_nccl_path()->set_communicator(attempt_);
    frame.mutable_nccl_path()->set_lost("the sender has given it up");
    send_(frame);
  }
  if (ready_) return Later([this, reason] { lost_(reason); });
  LogWarning("nccl is lost, kv goes on over tcp",
             {{"communicator", attempt_}, {"reason", std::string(reason.message())}});
  SendHeldInline();
  ending_timer_ = loop_->After(2 * stall_limit_, [this] {
    ending_timer_ = 0;
    OnClosed(/*clean=*/false);
  });
}

void NcclChannel::OnClosed(bool clean) {
  if (ending_ == nullptr) return;
  loop_->Cancel(std::exchange(ending_timer_, 0));
  ending_.reset();
  if (clean && failures_ < kMostFailures && attempt_ < kMostNcclCommunicators) {
    rebuild_timer_ = loop_->After(rebuild_pause_ * (1 << (failures_ - 1)), [this] {
      rebuild_timer_ = 0;
      Begin();
    });
  } else {
    if (!clean) {
      // The ring may still be read: what comes is gathered elsewhere, and goes by the
      // socket alone.
      instead_ = std::make_unique_for_overwrite<std::byte[]>(ring_->bytes);
      SetRing(instead_.get());
    }
    LogWarning("nccl is not tried again on this connection", {{"communicator", attempt_}});
  }
  Later(room_);
}

void NcclChannel::ArmStallTimer() {
  if (stall_timer_ != 0) return;
  stall_timer_ = loop_->After(kNcclStallInterval, [this] {
    stall_timer_ = 0;
    if (begun_.empty()) return;
    if (EventLoop::Clock::now() - begun_.front() > absl::ToChronoNanoseconds(stall_limit_)) {
      return Lose(absl::UnavailableError(absl::StrCat("NCCL: the peer has confirmed nothing for ",
                                                      absl::FormatDuration(stall_limit_))));
    }
    ArmStallTimer();
  });
}

void NcclChannel::Later(EventLoop::Task task) {
  loop_->Defer([alive = alive_, task = std::move(task)] {
    if (*alive) task();
  });
}

}  // namespace baton::transport
