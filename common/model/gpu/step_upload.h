// SPDX-License-Identifier: Apache-2.0
// The small arrays of a step, in one piece of pinned memory and one copy.
#pragma once

#include <cassert>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/model/gpu/device.h"

namespace baton::model::gpu {

// Begin, Put as often as needed, Send; the arrays hold until the next Begin.
// Thread safety: none.
class StepUpload final {
 public:
  // Room for `bytes` of arrays (each takes up to 16 more).
  absl::Status Begin(const Device& device, size_t bytes) {
    used_ = 0;
    if (bytes <= host_.bytes()) return absl::OkStatus();
    BATON_ASSIGN_OR_RETURN(host_, device.AllocateHost(bytes));
    BATON_ASSIGN_OR_RETURN(device_, device.Allocate(bytes, "a step's arrays"));
    return absl::OkStatus();
  }

  size_t room() const { return host_.bytes(); }

  // Where the array will be on the device. REQUIRES: Begin was told of it.
  template <typename T>
  const T* Put(std::span<const T> values) {
    const size_t at = used_;
    assert(at + values.size_bytes() <= host_.bytes());
    if (!values.empty()) std::memcpy(host_.data() + at, values.data(), values.size_bytes());
    used_ = (at + values.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<const T*>(device_.data() + at);
  }

  void Send(const Device& device) const {
    if (used_ > 0) {
      device.table().copy_in(device_.data(), host_.data(), used_, device.stream());
    }
  }

  static constexpr size_t kAlignment = 16;

 private:
  Buffer host_, device_;
  size_t used_ = 0;
};

}  // namespace baton::model::gpu
