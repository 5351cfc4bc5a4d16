// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/memory_watch.h"

namespace baton::model::gpu {

void MemoryWatch::Look(const Device& device, uint64_t kv_bytes, uint64_t step_bytes,
                       absl::Time now) {
  if (now < next_) return;
  next_ = now + kInterval;
  uint64_t total = 0, free = 0;
  device.table().memory(&total, &free);
  absl::MutexLock lock(&mutex_);
  memory_.total_bytes = total;
  memory_.free_bytes = free;
  memory_.kv_bytes = kv_bytes;
  memory_.step_bytes = step_bytes;
}

DeviceMemory MemoryWatch::Read() const {
  absl::MutexLock lock(&mutex_);
  return memory_;
}

}  // namespace baton::model::gpu
