// SPDX-License-Identifier: Apache-2.0
// The way of weights to the device: a few pinned slots that are filled while others
// are copied.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/model/gpu/device.h"

namespace baton::model::gpu {

// Each slot has a piece of pinned memory, one of the device and a stream of its
// own. What is done with a slot's bytes on the device is started on its stream,
// before the next slot is asked for. Thread safety: none.
class UploadRing final {
 public:
  static constexpr size_t kSlots = 3;

  // RESOURCE_EXHAUSTED: host or device have no room for the slots.
  static absl::StatusOr<std::unique_ptr<UploadRing>> Create(const Device& device,
                                                            size_t slot_bytes);
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  size_t slot_bytes() const { return slots_[0].host.bytes(); }

  // Memory to write into, slot_bytes() of it: of the oldest slot, once nothing is
  // under way there. INTERNAL when something has failed.
  absl::StatusOr<std::span<std::byte>> Next();
  // Starts the copy of the first `bytes` of what Next gave; where they are on the
  // device, for what follows on stream().
  const std::byte* Send(size_t bytes);
  dev::Stream stream() const { return slots_[at_].stream; }

  // `bytes` to `device`, slot by slot.
  absl::Status Copy(std::byte* device, std::span<const std::byte> bytes);
  // Waits for all slots.
  absl::Status Finish();

 private:
  struct Slot {
    Buffer host, device;
    dev::Stream stream = nullptr;
  };

  UploadRing(const Device& device, std::array<Slot, kSlots> slots)
      : device_(device), slots_(std::move(slots)) {}
  absl::Status Await(const Slot& slot) const;

  const Device& device_;
  std::array<Slot, kSlots> slots_;
  size_t at_ = 0;
};

}  // namespace baton::model::gpu
