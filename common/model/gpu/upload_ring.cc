// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/upload_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::model::gpu {

absl::StatusOr<std::unique_ptr<UploadRing>> UploadRing::Create(const Device& device,
                                                               size_t slot_bytes) {
  std::array<Slot, kSlots> slots;
  for (Slot& slot : slots) {
    BATON_ASSIGN_OR_RETURN(slot.device, device.Allocate(slot_bytes, "weights on their way"));
    BATON_ASSIGN_OR_RETURN(slot.host, device.AllocateHost(slot_bytes));
  }
  for (Slot& slot : slots) slot.stream = device.table().make_stream();
  return std::unique_ptr<UploadRing>(new UploadRing(device, std::move(slots)));
}

UploadRing::~UploadRing() {
  Finish().IgnoreError();  // the memory may still be copied from
  for (const Slot& slot : slots_) device_.table().drop_stream(slot.stream);
}

absl::Status UploadRing::Await(const Slot& slot) const {
  if (const char* problem = device_.table().finish(slot.stream)) {
    return absl::InternalError(absl::StrCat("the GPU failed while weights were loaded: ", problem));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<std::byte>> UploadRing::Next() {
  at_ = (at_ + 1) % kSlots;
  BATON_RETURN_IF_ERROR(Await(slots_[at_]));
  return std::span(slots_[at_].host.data(), slots_[at_].host.bytes());
}

const std::byte* UploadRing::Send(size_t bytes) {
  const Slot& slot = slots_[at_];
  device_.table().copy_in(slot.device.data(), slot.host.data(), bytes, slot.stream);
  return slot.device.data();
}

absl::Status UploadRing::Copy(std::byte* device, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    BATON_ASSIGN_OR_RETURN(const std::span<std::byte> host, Next());
    const size_t count = std::min(host.size(), bytes.size());
    std::memcpy(host.data(), bytes.data(), count);
    device_.table().copy_in(device, host.data(), count, stream());
    device += count;
    bytes = bytes.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status UploadRing::Finish() {
  absl::Status first;
  for (const Slot& slot : slots_) first.Update(Await(slot));
  return first;
}

}  // namespace baton::model::gpu
