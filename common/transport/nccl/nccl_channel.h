// SPDX-License-Identifier: Apache-2.0
// The sender's end of a connection of nccl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "common/transport/nccl/nccl_pair.h"
#include "common/transport/nccl/nccl_runtime.h"
#include "common/transport/put_channel.h"
#include "common/transport/ring_channel.h"

namespace baton::transport {

// Of one connection.
inline constexpr uint32_t kMostNcclCommunicators = 1000;

class NcclChannel final : public RingChannel {
 public:
  NcclChannel(std::shared_ptr<NcclRuntime> runtime, std::shared_ptr<void> place,
              uint64_t ring_bytes, const ChannelContext& context);
  ~NcclChannel() override;

  // Ready when the trial has come through; within the stall limit, or never.
  void Welcomed(const baton::v1::HandoffWelcome& welcome, Done ready) override;
  bool bounds_opening() const override { return true; }
  bool CanSend(size_t bytes) const override {
    return ending_ == nullptr && RingChannel::CanSend(bytes);
  }
  absl::Status Arrived(const baton::v1::Arrived& arrived) override;
  absl::Status OnPath(const baton::v1::NcclPath& path) override;
  void LosePath() override { Lose(absl::UnavailableError("NCCL: cut")); }

 private:
  enum class State { kDown, kOpening, kUp };

  bool SendBytes(const baton::v1::Put& put) override;
  // Begins the next communicator.
  void Begin();
  void OnNamed(const NcclUniqueId& id);
  void OpenIfBoth();
  // Gives the communicator up; hand-offs go on over the socket.
  void Lose(const absl::Status& reason);
  // Nothing of it touches the ring any more.
  void OnClosed(bool clean);
  void ArmStallTimer();
  // Runs `task` after this turn of the loop, if this is still there.
  void Later(EventLoop::Task task);

  const std::shared_ptr<NcclRuntime> runtime_;  // first: the rest ends on its thread
  const std::shared_ptr<void> place_;
  const std::shared_ptr<NcclHostRing> ring_;
  std::unique_ptr<std::byte[]> instead_;  // of ring_, when NCCL does not let go of it
  EventLoop* const loop_;
  const absl::Duration stall_limit_;
  const absl::Duration rebuild_pause_;
  const std::function<void(const absl::Status&)> lost_;
  const std::function<void(const baton::v1::HandoffFrame&)> send_;
  const std::function<void()> room_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  State state_ = State::kDown;
  uint32_t attempt_ = 0;
  uint32_t failures_ = 0;  // in a row
  EventLoop::Clock::time_point up_since_;
  Done ready_;                                           // until the first has opened
  bool named_ = false, joined_ = false, tried_ = false;  // of the current one
  std::unique_ptr<NcclLine> line_;                       // unless kDown
  std::unique_ptr<NcclLine> ending_;                     // the last one, while it may read the ring
  // When what the receiver has not confirmed was begun: the trial, then puts.
  std::deque<EventLoop::Clock::time_point> begun_;
  uint64_t stall_timer_ = 0, rebuild_timer_ = 0, ending_timer_ = 0;
};

}  // namespace baton::transport
