// SPDX-License-Identifier: Apache-2.0
// Our declarations of NCCL against its own header, where that is installed.
#include "common/transport/nccl/nccl_abi.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "common/transport/nccl/nccl_table.h"

namespace baton::transport {
namespace {

static_assert(kNcclIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(alignof(NcclUniqueId) == alignof(ncclUniqueId));
static_assert(std::is_trivially_copyable_v<NcclUniqueId>);
static_assert(sizeof(NcclResult) == sizeof(ncclResult_t));
static_assert(static_cast<int>(NcclResult::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);
static_assert(kNcclUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(kNcclInt8 == ncclInt8);
static_assert(sizeof(NcclComm) == sizeof(ncclComm_t));

#define BATON_SAME_PLACE(ours, theirs)                                         \
  static_assert(offsetof(NcclConfig, ours) == offsetof(ncclConfig_t, theirs)); \
  static_assert(std::is_same_v<decltype(NcclConfig::ours), decltype(ncclConfig_t::theirs)>)
BATON_SAME_PLACE(size, size);
BATON_SAME_PLACE(magic, magic);
BATON_SAME_PLACE(version, version);
BATON_SAME_PLACE(blocking, blocking);
BATON_SAME_PLACE(cga_cluster_size, cgaClusterSize);
BATON_SAME_PLACE(min_ctas, minCTAs);
BATON_SAME_PLACE(max_ctas, maxCTAs);
BATON_SAME_PLACE(net_name, netName);
BATON_SAME_PLACE(split_share, splitShare);
BATON_SAME_PLACE(traffic_class, trafficClass);
BATON_SAME_PLACE(comm_name, commName);
BATON_SAME_PLACE(collnet_enable, collnetEnable);
BATON_SAME_PLACE(cta_policy, CTAPolicy);
BATON_SAME_PLACE(shrink_share, shrinkShare);
BATON_SAME_PLACE(nvls_ctas, nvlsCTAs);
BATON_SAME_PLACE(channels_per_net_peer, nChannelsPerNetPeer);
BATON_SAME_PLACE(nvlink_centric_sched, nvlinkCentricSched);
#undef BATON_SAME_PLACE
// Later versions add fields at the end, and take ours for what they are by `size`.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));

TEST(NcclAbi, ConfigurationIsTheOneThatNcclInitializes) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_LE(ours.version, theirs.version);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.max_ctas, theirs.maxCTAs);
  EXPECT_EQ(ours.nvlink_centric_sched, theirs.nvlinkCentricSched);
}

// The arguments, one by one; a pointer to a struct of theirs is one to ours.
template <typename Function>
constexpr size_t kArguments = 0;
template <typename Result, typename... Arguments>
constexpr size_t kArguments<Result (*)(Arguments...)> = sizeof...(Arguments);

TEST(NcclAbi, FunctionsTakeAsManyArguments) {
  EXPECT_EQ(kArguments<decltype(NcclTable::get_version)>, kArguments<decltype(&ncclGetVersion)>);
  EXPECT_EQ(kArguments<decltype(NcclTable::comm_init_rank_config)>,
            kArguments<decltype(&ncclCommInitRankConfig)>);
  EXPECT_EQ(kArguments<decltype(NcclTable::send)>, kArguments<decltype(&ncclSend)>);
  EXPECT_EQ(kArguments<decltype(NcclTable::recv)>, kArguments<decltype(&ncclRecv)>);
}

}  // namespace
}  // namespace baton::transport
