// SPDX-License-Identifier: Apache-2.0
// The one thread of this process that copies for cuda_ipc.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/transport/device_thread.h"
#include "kernels/cuda/api/transfer_table.h"

namespace baton::transport {

class IpcRuntime {
 public:
  // Made for the first who asks, gone with the last, who waits until no copy is under
  // way (10 s at most). UNAVAILABLE: no GPU, no plugin. One device per process.
  static absl::StatusOr<std::shared_ptr<IpcRuntime>> Get(const std::string& device);
  IpcRuntime(const IpcRuntime&) = delete;
  IpcRuntime& operator=(const IpcRuntime&) = delete;

  const gpu::TransferTable& device() const { return *device_; }
  DeviceThread& thread() { return thread_; }

 private:
  IpcRuntime(const gpu::TransferTable* device, std::string device_name)
      : device_(device), device_name_(std::move(device_name)), thread_("kv-ipc", device) {}
  static absl::StatusOr<std::shared_ptr<IpcRuntime>> Make(const std::string& device);

  const gpu::TransferTable* const device_;
  const std::string device_name_;
  DeviceThread thread_;
};

}  // namespace baton::transport
