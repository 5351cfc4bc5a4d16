// SPDX-License-Identifier: Apache-2.0
// The small arrays of a step, in one piece of pinned memory and one copy. Pieces take
// turns, as the copy of the step before may be under way.
#pragma once

#include <array>
#include <cassert>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/model/gpu/device.h"

namespace baton::model::gpu {

// Begin, Put as often as needed, Send; the arrays on the device hold until those of the
// next Send come in the stream's order. Thread safety: none.
class StepUpload final {
 public:
  // Room for `bytes` of arrays (each takes up to 16 more).
  // REQUIRES: the step before the last one is done; all are, when there is no room() yet.
  absl::Status Begin(const Device& device, size_t bytes) {
    used_ = 0;
    if (bytes > device_.bytes()) {
      BATON_ASSIGN_OR_RETURN(device_, device.Allocate(bytes, "a step's arrays"));
    }
    if (bytes > host().bytes()) {
      BATON_ASSIGN_OR_RETURN(hosts_[turn_], device.AllocateHost(bytes));
    }
    return absl::OkStatus();
  }

  size_t room() const { return device_.bytes(); }

  // Where the array will be on the device. REQUIRES: Begin was told of it.
  template <typename T>
  const T* Put(std::span<const T> values) {
    const size_t at = used_;
    assert(at + values.size_bytes() <= host().bytes());
    if (!values.empty()) std::memcpy(host().data() + at, values.data(), values.size_bytes());
    used_ = (at + values.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<const T*>(device_.data() + at);
  }

  void Send(const Device& device) {
    if (used_ > 0) {
      device.table().copy_in(device_.data(), host().data(), used_, device.stream());
    }
    turn_ = 1 - turn_;
  }

  static constexpr size_t kAlignment = 16;

 private:
  const Buffer& host() const { return hosts_[turn_]; }

  std::array<Buffer, 2> hosts_;
  Buffer device_;
  size_t turn_ = 0;
  size_t used_ = 0;
};

}  // namespace baton::model::gpu
