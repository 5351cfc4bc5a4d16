// SPDX-License-Identifier: Apache-2.0
#include "client/cli/status_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ClusterStatus ClusterAt(uint64_t prompt_tokens, uint64_t tokens, uint32_t pid = 7) {
  WorkerStatus worker;
  worker.id = "d";
  worker.role = "decode";
  worker.pid = pid;
  worker.running_sequences = 3;
  worker.kv_blocks_total = 100;
  worker.kv_blocks_free = 60;
  worker.kv_blocks_requests = 30;
  worker.kv_blocks_transfers = 10;
  worker.preemptions = 4;
  worker.prompt_tokens = prompt_tokens;
  worker.tokens = tokens;
  ClusterStatus cluster;
  cluster.workers = {worker};
  return cluster;
}

TEST(StatusView, ShowsBatchAndBlocksByOwner) {
  const std::string text = FormatCluster(ClusterAt(0, 0), std::nullopt);
  EXPECT_THAT(text, HasSubstr("40/100"));
  EXPECT_THAT(text, HasSubstr("30+10+0"));
  EXPECT_THAT(text, HasSubstr(" - "));
  EXPECT_EQ(FormatCluster({}, std::nullopt), "no workers\n");
}

TEST(StatusView, ShowsHowMuchOfTheGpuIsUsed) {
  ClusterStatus cluster = ClusterAt(0, 0);
  EXPECT_THAT(FormatCluster(cluster, std::nullopt), Not(HasSubstr("GiB")));
  cluster.workers[0].device_memory = {.total = uint64_t{80} << 30, .free = uint64_t{60} << 30};
  EXPECT_THAT(FormatCluster(cluster, std::nullopt), HasSubstr("20.00 GiB/80.00 GiB"));
}

TEST(StatusView, RatesAreTakenFromTwoLooks) {
  const Earlier earlier{ClusterAt(1000, 200), 2};
  EXPECT_THAT(FormatCluster(ClusterAt(5000, 500), earlier), HasSubstr("2000/150"));
}

TEST(StatusView, TransferRateIsOfPrefillWorkers) {
  ClusterStatus before = ClusterAt(1000, 200), now = ClusterAt(5000, 500);
  now.workers[0].handoff_bytes = 6 << 20;
  EXPECT_THAT(FormatCluster(now, Earlier{before, 2}), Not(HasSubstr("3.00 MiB")));
  before.workers[0].role = now.workers[0].role = "prefill";
  EXPECT_THAT(FormatCluster(now, Earlier{before, 2}), HasSubstr("3.00 MiB"));
}

TEST(StatusView, WorkerThatWasStartedAnewHasNoRateYet) {
  const Earlier earlier{ClusterAt(1000, 200), 2};
  EXPECT_THAT(FormatCluster(ClusterAt(5000, 500, 8), earlier), HasSubstr(" - "));
  EXPECT_THAT(FormatCluster(ClusterAt(5, 500), earlier), HasSubstr(" - "));
}

}  // namespace
}  // namespace baton::cli
