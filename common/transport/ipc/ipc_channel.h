// SPDX-License-Identifier: Apache-2.0
// The sender's end of cuda_ipc: names where blocks are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "baton/v1/handoff.pb.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

// Of offsets and sizes, as device copies like them.
inline constexpr size_t kIpcAlignment = 16;
// Of one put.
inline constexpr size_t kMostIpcSlices = 4096;

// A put of the pool carries offsets; its sources are in use until the receiver has
// copied them. Once the receiver cannot, or for bytes that are on the host, puts carry
// their bytes, as on tcp.
class IpcChannel final : public PutChannel {
 public:
  // REQUIRES: context.options.pool.
  explicit IpcChannel(const ChannelContext& context);

  void Welcomed(const baton::v1::HandoffWelcome& welcome, Done ready) override;
  size_t frame_bytes() const override { return lost_ ? kSocketFrameBytes : frame_bytes_; }
  bool CanSend(size_t bytes) const override;
  void Stage(baton::v1::Put& put, Sources sources) override;
  bool takes_pool() const override { return !lost_; }
  void StageInPool(baton::v1::Put& put, Sources places) override;
  void Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
            EventLoop::Task sent) override;
  absl::Status Consumed(uint64_t bytes) override;
  absl::Status OnIpcPath(const baton::v1::IpcPath& path) override;

 private:
  static constexpr size_t kSocketFrameBytes = 256 << 10;

  // A put whose sources the receiver copies from.
  struct UnderWay {
    uint64_t transfer, bytes;
    EventLoop::Task sent;
  };

  const ChannelContext context_;
  const size_t slice_bytes_, frame_bytes_;
  Done ready_;
  bool lost_ = false;
  Sources staged_;  // of the put that is sent next, when it carries its bytes
  std::deque<UnderWay> under_way_;
  uint64_t bytes_under_way_ = 0;
};

}  // namespace baton::transport
