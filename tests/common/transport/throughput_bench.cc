// SPDX-License-Identifier: Apache-2.0
// How fast KV travels from one process's memory into another's blocks, both
// checksums included: prints GB/s and the time from the last put to the commit.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <optional>

#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

class Throughput : public TransportTest {
 protected:
  // SmolLM2-135M: 30 layers with slices of 24 KiB in bf16.
  static kv::KvLayout SmolLm2(kv::KvType type) {
    kv::KvLayout layout = SharedLayout(type);
    layout.layers = 30;
    layout.kv_heads = 3;
    layout.head_dim = 64;
    return layout;
  }

  void Measure(const char* what, kv::KvType sender, kv::KvType receiver,
               std::optional<kv::KvType> wire);
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Throughput::Measure(const char* what, kv::KvType sender, kv::KvType receiver,
                         std::optional<kv::KvType> wire) {
  constexpr int kRounds = 12;
  layout_ = SmolLm2(receiver);
  sender_layout_ = SmolLm2(sender);
  sender_options_.wire = wire;
  Start();
  PromptKv prompt(*sender_layout_, 48, 1);
  double best = 0, sum_seconds = 0, cpu_seconds = 0;
  double tail_ms = 0;
  for (int round = 0; round < kRounds; ++round) {
    Outcome granted, commit;
    if (round > 0) landing_->ReuseBlocksOf(1);
    const auto writer = Open(round, prompt.tokens(), granted.done());
    ASSERT_EQ(granted.Wait(), absl::OkStatus());
    std::vector<Outcome> puts(layout_.layers);
    const double cpu_before = CpuSeconds();
    const absl::Time begin = absl::Now();
    for (uint32_t l = 0; l < layout_.layers; ++l) {
      const PutRange range{l, l + 1, 0, prompt.count()};
      writer->Put(range, prompt.Sources(range), puts[l].done());
    }
    writer->Commit({}, commit.done());
    ASSERT_EQ(puts.back().Wait(), absl::OkStatus());
    const absl::Time last_put = absl::Now();
    ASSERT_EQ(commit.Wait(), absl::OkStatus());
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    if (round == 0) continue;  // warms the pages up
    best = std::max(best, static_cast<double>(writer->bytes()) / seconds / 1e9);
    sum_seconds += seconds;
    cpu_seconds += CpuSeconds() - cpu_before;
    tail_ms += absl::ToDoubleMilliseconds(absl::Now() - last_put);
  }
  const kv::KvLayout travels = *kv::StoredAs(*sender_layout_, wire.value_or(sender));
  const double bytes = static_cast<double>(travels.BlockBytes()) * prompt.count();
  const double moved = bytes * (kRounds - 1) / 1e9;
  std::printf(
      "%s, %s: %.2f GB/s on average, best %.2f; %.2f s of CPU per GB, both sides; last put to "
      "commit "
      "%.2f ms (%.1f MB a prompt, %.2f ms of CPU)\n",
      GetParam().c_str(), what, moved / sum_seconds, best, cpu_seconds / moved,
      tail_ms / (kRounds - 1), bytes / 1e6, cpu_seconds / (kRounds - 1) * 1e3);
  EXPECT_TRUE(prompt.StoredAs(travels).StoredAs(layout_).Equals(landing_->blocks(1)));
}

TEST_P(Throughput, PromptsOf48BlocksLayerByLayer) {
  Measure("bf16", kv::KvType::kBf16, kv::KvType::kBf16, std::nullopt);
}

TEST_P(Throughput, PromptsThatTheReceiverConverts) {
  Measure("bf16 into int8", kv::KvType::kBf16, kv::KvType::kInt8, std::nullopt);
}

TEST_P(Throughput, PromptsThatBothSidesConvert) {
  Measure("bf16 over int8", kv::KvType::kBf16, kv::KvType::kBf16, kv::KvType::kInt8);
}

// Over stand-ins nccl and cuda_ipc have no speed worth a number.
INSTANTIATE_TEST_SUITE_P(Kv, Throughput, ::testing::ValuesIn([] {
                           std::vector<std::string> names = TransportNames();
                           std::erase(names, "nccl");
                           std::erase(names, "cuda_ipc");
                           return names;
                         }()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace baton::transport
