// SPDX-License-Identifier: Apache-2.0
// NCCL in this process, and the one thread that calls it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/transport/device_thread.h"
#include "common/transport/nccl/nccl_table.h"
#include "kernels/cuda/api/transfer_table.h"

namespace baton::transport {

// NCCL is not thread-safe among communicators of one device, and its calls may take
// their time: all of them, and those to the device, run on the thread of this
// object, which polls what is under way and sleeps when nothing is.
class NcclRuntime {
 public:
  using Task = DeviceThread::Task;
  // A communicator takes tens of megabytes of GPU memory and up to two
  // multiprocessors while something is under way.
  static constexpr uint32_t kMaxCommunicators = 16;

  // Made for the first who asks, gone with the last, who waits for the thread; one
  // that hangs inside NCCL is left behind. UNAVAILABLE: no library, no GPU. One device
  // per process.
  static absl::StatusOr<std::shared_ptr<NcclRuntime>> Get(const std::string& device);
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  const NcclTable& nccl() const { return nccl_; }
  const gpu::TransferTable& device() const { return *device_; }

  // Runs `task` on the thread, in order of the calls. Any thread.
  void Post(Task task) { thread_.Post(std::move(task)); }
  // The pair is polled from now on, until it is gone. On the thread.
  void Add(std::shared_ptr<Polled> pair) { thread_.Add(std::move(pair)); }

  // The right to a communicator at a time, given back with the last copy, which must
  // go before this object does. Null: all are taken. Any thread.
  std::shared_ptr<void> TakePlace();

 private:
  NcclRuntime(const NcclTable& nccl, const gpu::TransferTable* device, std::string device_name)
      : nccl_(nccl),
        device_(device),
        device_name_(std::move(device_name)),
        thread_("kv-nccl", device) {}
  static absl::StatusOr<std::shared_ptr<NcclRuntime>> Make(const std::string& device);

  const NcclTable nccl_;
  const gpu::TransferTable* const device_;
  const std::string device_name_;
  std::atomic<uint32_t> places_taken_{0};
  DeviceThread thread_;
};

}  // namespace baton::transport
