// SPDX-License-Identifier: Apache-2.0
// Types that NCCL's functions take, so that no header of it is needed: ours, with the
// layout of NCCL 2.28 (tests/common/transport/nccl_abi_test.cc compares them where
// nccl.h is installed).
#pragma once

#include <climits>
#include <cstddef>

namespace baton::transport {

inline constexpr size_t kNcclIdBytes = 128;

struct NcclUniqueId {
  char bytes[kNcclIdBytes];  // NOLINT(modernize-avoid-c-arrays): passed by value
};

// Others are errors.
enum class NcclResult : int { kSuccess = 0, kInProgress = 7 };

// What NCCL calls undefined: it chooses.
inline constexpr int kNcclUndefined = INT_MIN;

struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22800;
  int blocking = kNcclUndefined;
  int cga_cluster_size = kNcclUndefined;
  int min_ctas = kNcclUndefined;
  int max_ctas = kNcclUndefined;
  const char* net_name = nullptr;
  int split_share = kNcclUndefined;
  int traffic_class = kNcclUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kNcclUndefined;
  int cta_policy = kNcclUndefined;
  int shrink_share = kNcclUndefined;
  int nvls_ctas = kNcclUndefined;
  int channels_per_net_peer = kNcclUndefined;
  int nvlink_centric_sched = kNcclUndefined;
};

using NcclComm = void*;
inline constexpr int kNcclInt8 = 0;  // ncclDataType_t: bytes

}  // namespace baton::transport
