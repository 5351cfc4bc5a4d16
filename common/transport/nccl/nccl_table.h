// SPDX-License-Identifier: Apache-2.0
// The few functions of NCCL that move KV, found at run time: nothing links it.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transport/nccl/nccl_abi.h"

namespace baton::transport {

struct NcclTable {
  NcclResult (*get_version)(int* version);
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*comm_init_rank_config)(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config);
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* error);
  NcclResult (*comm_abort)(NcclComm comm);
  NcclResult (*send)(const void* from, size_t count, int type, int peer, NcclComm comm,
                     void* stream);
  NcclResult (*recv)(void* into, size_t count, int type, int peer, NcclComm comm, void* stream);
  const char* (*get_error_string)(NcclResult result);
  void* library = nullptr;  // of dlopen; never closed
};

// The library that BATON_NCCL_LIBRARY names, else libnccl.so.2. UNAVAILABLE, in one
// sentence: there is none, or it is older than 2.28.
absl::StatusOr<NcclTable> LoadNccl();

// UNAVAILABLE: NCCL's words for `what` having failed.
absl::Status NcclError(const NcclTable& nccl, const std::string& what, NcclResult result);

}  // namespace baton::transport
