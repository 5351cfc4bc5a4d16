// SPDX-License-Identifier: Apache-2.0
#include "common/worker/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/worker/host_id.h"

namespace baton::worker {
namespace {

Options Good() {
  Options options;
  options.role = WorkerRole::kDecode;
  options.routers = {"127.0.0.1:8500"};
  return options;
}

TEST(CompleteOptions, FillsInNamesAndTransports) {
  Options options = Good();
  ASSERT_TRUE(Complete(&options).ok());
  EXPECT_THAT(options.worker_id, ::testing::StartsWith("decode-" + HostName() + "-"));
  EXPECT_EQ(options.host_id, HostId());
  EXPECT_THAT(options.transports, ::testing::ElementsAre("shm", "tcp"));
}

TEST(CompleteOptions, RefusalNamesTheFlag) {
  const std::pair<const char*, std::function<void(Options&)>> cases[] = {
      {"--router", [](Options& o) { o.routers.clear(); }},
      {"--chunk-tokens", [](Options& o) { o.chunk_tokens = 33; }},
      {"--chunk-tokens", [](Options& o) { o.chunk_tokens = 0; }},
      {"--max-sequences", [](Options& o) { o.max_sequences = 0; }},
      {"--kv-tokens",
       [](Options& o) {
         o.kv_tokens = 64;
         o.kv_memory = "1GiB";
       }},
      {"--transport", [](Options& o) { o.transports = {"pigeon"}; }},
      {"--deterministic", [](Options& o) { o.deterministic = false; }},
      {"--worker-id", [](Options& o) { o.worker_id = std::string(129, 'x'); }},
      {"--tenant-weight", [](Options& o) { o.tenant_weights = {"gold=0"}; }},
      {"--aging", [](Options& o) { o.policy.aging = absl::ZeroDuration(); }},
      {"--handoff-timeout", [](Options& o) { o.handoff_timeout = absl::ZeroDuration(); }},
  };
  for (const auto& [flag, spoil] : cases) {
    Options options = Good();
    spoil(options);
    const absl::Status status = Complete(&options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << flag;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(flag));
  }
}

TEST(CompleteOptions, WeightsOfTenantsReachThePolicy) {
  Options options = Good();
  options.tenant_weights = {"gold=3", "a=b=0.5"};
  ASSERT_TRUE(Complete(&options).ok());
  EXPECT_THAT(options.policy.tenant_weights,
              ::testing::ElementsAre(::testing::Pair("a=b", 0.5), ::testing::Pair("gold", 3)));
}

TEST(HostId, IsStableAndShort) {
  EXPECT_EQ(HostId(), HostId());
  EXPECT_THAT(HostId(), ::testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(HostId().size(), 16);
}

}  // namespace
}  // namespace baton::worker
