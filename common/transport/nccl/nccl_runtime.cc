// SPDX-License-Identifier: Apache-2.0
#include "common/transport/nccl/nccl_runtime.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::transport {
namespace {

// A stand-in for NCCL brings memory of its own, for hosts without a GPU; with the
// real one it is the GPU's, by its plugin.
absl::StatusOr<TransferDevice> FindDevice(const std::string& device, void* nccl) {
  if (const gpu::TransferTable* own = TransferTableOf(nccl)) return TransferDevice{own, 0};
  return FindTransferDevice("nccl", device);
}

}  // namespace

absl::StatusOr<std::shared_ptr<NcclRuntime>> NcclRuntime::Get(const std::string& device) {
  static std::mutex mutex;
  static std::weak_ptr<NcclRuntime> shared;
  std::lock_guard lock(mutex);
  std::shared_ptr<NcclRuntime> runtime = shared.lock();
  if (runtime == nullptr) {
    BATON_ASSIGN_OR_RETURN(runtime, Make(device));
    shared = runtime;
  }
  if (runtime->device_name_ != device) {
    return absl::UnavailableError(absl::StrCat("nccl is in use on device ", runtime->device_name_,
                                               " and cannot be on ", device, " besides"));
  }
  return runtime;
}

absl::StatusOr<std::shared_ptr<NcclRuntime>> NcclRuntime::Make(const std::string& device) {
  BATON_ASSIGN_OR_RETURN(const NcclTable nccl, LoadNccl());
  BATON_ASSIGN_OR_RETURN(const TransferDevice found, FindDevice(device, nccl.library));
  std::shared_ptr<NcclRuntime> runtime(new NcclRuntime(nccl, found.table, device),
                                       [](NcclRuntime* last) {
                                         if (last->thread_.Stop()) delete last;
                                       });
  if (const absl::Status started = runtime->thread_.Start(found.index); !started.ok()) {
    return absl::UnavailableError(
        absl::StrCat("nccl cannot use device ", device, ": ", std::string(started.message())));
  }
  return runtime;
}

std::shared_ptr<void> NcclRuntime::TakePlace() {
  uint32_t taken = places_taken_;
  do {
    if (taken >= kMaxCommunicators) return nullptr;
  } while (!places_taken_.compare_exchange_weak(taken, taken + 1));
  return {this, [this](void*) { --places_taken_; }};
}

}  // namespace baton::transport
