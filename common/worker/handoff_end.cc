// SPDX-License-Identifier: Apache-2.0
#include "common/worker/handoff_end.h"

#include "common/base/log.h"

namespace baton::worker {

bool KeepsCudaIpc(const kv::DevicePool* pool, const std::vector<std::string>& transports) {
  if (pool != nullptr || transports.size() < 2) return true;
  LogWarning("cuda_ipc is not offered",
             {{"reason", "the KV blocks are in no memory that other processes can map"}});
  return false;
}

}  // namespace baton::worker
