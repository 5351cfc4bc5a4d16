// SPDX-License-Identifier: Apache-2.0
// What a worker's GPU memory is used for, as of lately, for whoever asks.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/model/gpu/device.h"
#include "common/model/model.h"

namespace baton::model::gpu {

// Thread safety: Read may come from any thread, the rest from the device's.
class MemoryWatch final {
 public:
  explicit MemoryWatch(uint64_t weight_bytes) { memory_.weight_bytes = weight_bytes; }

  // Asks the driver, which is not free, at most once a second.
  void Look(const Device& device, uint64_t kv_bytes, uint64_t step_bytes, absl::Time now);
  DeviceMemory Read() const;

 private:
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  absl::Time next_ = absl::InfinitePast();
  mutable absl::Mutex mutex_;
  DeviceMemory memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::model::gpu
