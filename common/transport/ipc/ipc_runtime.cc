// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ipc/ipc_runtime.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::transport {

absl::StatusOr<std::shared_ptr<IpcRuntime>> IpcRuntime::Get(const std::string& device) {
  static std::mutex mutex;
  static std::weak_ptr<IpcRuntime> shared;
  std::lock_guard lock(mutex);
  std::shared_ptr<IpcRuntime> runtime = shared.lock();
  if (runtime == nullptr) {
    BATON_ASSIGN_OR_RETURN(runtime, Make(device));
    shared = runtime;
  }
  if (runtime->device_name_ == device) return runtime;
  return absl::UnavailableError(absl::StrCat("cuda_ipc is in use on device ", runtime->device_name_,
                                             " and cannot be on ", device, " besides"));
}

absl::StatusOr<std::shared_ptr<IpcRuntime>> IpcRuntime::Make(const std::string& device) {
  BATON_ASSIGN_OR_RETURN(const TransferDevice found, FindTransferDevice("cuda_ipc", device));
  std::shared_ptr<IpcRuntime> runtime(new IpcRuntime(found.table, device), [](IpcRuntime* last) {
    if (last->thread_.Stop()) delete last;
  });
  if (const absl::Status started = runtime->thread_.Start(found.index); !started.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cuda_ipc cannot use device ", device, ": ", std::string(started.message())));
  }
  return runtime;
}

}  // namespace baton::transport
