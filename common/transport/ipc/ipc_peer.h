// SPDX-License-Identifier: Apache-2.0
// Another process's KV pool, from which this one copies.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"
#include "common/transport/device_thread.h"
#include "common/transport/ipc/ipc_channel.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

// Copies run in a stream of its own, in order, up to kDepth jobs at once; nothing
// waits for them but events that are asked for. Belongs to the device's thread.
//
// The way is lost when a copy cannot be started or fails, or takes longer than the
// stall limit. Then jobs that have not begun fail at once, and those under way when
// they come to their end, whenever that is: until then they may write.
class IpcPeer final : public Polled {
 public:
  struct Job {
    std::vector<PullRun> runs;  // none: it is done in its turn
    uint32_t slice_bytes;
    PutSource::Pulled done;  // called on the thread
  };
  // Told on the thread.
  struct Events {
    std::function<void(const absl::Status&)> opened;
    std::function<void(const absl::Status&)> lost;  // once, after `opened` with OK
  };

  IpcPeer(const gpu::TransferTable* device, UniqueFd pool, size_t pool_bytes,
          absl::Duration stall_limit, Events events)
      : device_(*device),
        pool_fd_(std::move(pool)),
        pool_bytes_(pool_bytes),
        stall_limit_(absl::ToChronoNanoseconds(stall_limit)),
        events_(std::move(events)) {}
  ~IpcPeer() override;

  void Open();
  void Add(Job job);
  // Nobody is told anything any more; it is gone once no copy is under way.
  void Close();

  bool Poll() override;
  bool busy() const override { return !under_way_.empty() || !waiting_.empty() || closed_; }
  bool gone() const override { return closed_ && under_way_.empty(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kDepth = 8;

  struct Started {
    Job job;
    size_t slot;  // of the events, and of the checksums' memory
    Clock::time_point at;
    absl::Status failed;  // it could be started in part alone
  };

  absl::Status Map();
  void StartNext();
  absl::Status Start(const Job& job, uint32_t* checksums);
  absl::Status StartCopies(const Job& job);
  absl::Status StartChecksums(const Job& job, uint32_t* checksums);
  // Takes the oldest off when it has ended.
  bool TakeEnded();
  void Lose(const absl::Status& reason);
  void TellLost();
  const std::byte* At(size_t offset) const { return static_cast<const std::byte*>(pool_) + offset; }

  const gpu::TransferTable& device_;
  const UniqueFd pool_fd_;
  const size_t pool_bytes_;
  const std::chrono::nanoseconds stall_limit_;
  Events events_;

  const void* pool_ = nullptr;
  gpu::Stream stream_ = nullptr;
  std::array<gpu::Event, kDepth> ends_{};
  uint32_t* checksums_ = nullptr;  // [kDepth, kMostIpcSlices], pinned
  std::deque<Job> waiting_;
  std::deque<Started> under_way_;
  size_t next_slot_ = 0;
  std::optional<absl::Status> lost_;
  bool told_ = false, closed_ = false;
};

}  // namespace baton::transport
