// SPDX-License-Identifier: Apache-2.0
// Copies, gathers, scatters and zeroes of KV blocks.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/base/crc32c.h"
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/simt/block.h"

namespace baton::gpu {
namespace {

std::vector<unsigned char> Numbered(size_t bytes) {
  std::vector<unsigned char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(i * 31 + i / 251);
  return data;
}

TEST(GpuBlocks, CopiesWholeBlocksAndNothingElse) {
  for (uint64_t bytes : {16u, 4096u, 16384u, 16400u, 50000u / 16 * 16}) {
    auto pool = Numbered(6 * bytes);
    const auto before = pool;
    const std::vector<uint32_t> from = {5, 0}, to = {1, 3};
    CopyBlocks({pool.data(), pool.data(), from.data(), to.data(), bytes, 0, bytes, 0, bytes, 2},
               nullptr);
    for (size_t block = 0; block < 6; ++block) {
      const size_t source = block == 1 ? 5 : block == 3 ? 0 : block;
      EXPECT_EQ(std::memcmp(&pool[block * bytes], &before[source * bytes], bytes), 0) << block;
    }
  }
}

// A layer of some blocks into a run of memory, and back into others.
TEST(GpuBlocks, GathersAndScattersALayer) {
  constexpr uint64_t kLayer = 2048, kBlock = 3 * kLayer;
  const auto pool = Numbered(8 * kBlock);
  const std::vector<uint32_t> from = {7, 2, 4}, to = {0, 6, 1};
  std::vector<unsigned char> run(3 * kLayer), other(8 * kBlock);
  CopyBlocks({pool.data(), run.data(), from.data(), nullptr, kBlock, kLayer, kLayer, 0, kLayer, 3},
             nullptr);
  CopyBlocks({run.data(), other.data(), nullptr, to.data(), kLayer, 0, kBlock, kLayer, kLayer, 3},
             nullptr);
  std::vector<unsigned char> expected(other.size());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(std::memcmp(&run[i * kLayer], &pool[from[i] * kBlock + kLayer], kLayer), 0);
    std::memcpy(&expected[to[i] * kBlock + kLayer], &run[i * kLayer], kLayer);
  }
  EXPECT_EQ(other, expected);
}

TEST(GpuBlocks, ZeroesTheNamedBlocks) {
  constexpr uint64_t kBlock = 16400;
  auto pool = Numbered(5 * kBlock);
  const auto before = pool;
  const std::vector<uint32_t> index = {3, 1};
  ZeroBlocks({pool.data(), index.data(), kBlock, kBlock, 2}, nullptr);
  const std::vector<unsigned char> zeros(kBlock);
  for (size_t block = 0; block < 5; ++block) {
    const auto* expected = block % 2 == 1 ? zeros.data() : &before[block * kBlock];
    EXPECT_EQ(std::memcmp(&pool[block * kBlock], expected, kBlock), 0) << block;
  }
}

// Shorter than a word for each thread, ragged, and the sizes of blocks.
TEST(GpuBlocks, ChecksumsAreTheHostsOfEverySlice) {
  constexpr uint32_t kSlices = 3;
  for (const auto schedule : {simt::Schedule::kInOrder, simt::Schedule::kRandom}) {
    simt::SetSchedule(schedule);
    for (const uint32_t bytes : {4u, 96u, 1024u, 1028u, 4160u, 16384u}) {
      const auto data = Numbered(size_t{4} * kSlices * bytes + 64);
      ChecksumTask task{};
      std::vector<uint32_t> sums(2 * kSlices, 1);
      task.runs[0] = &data[size_t{kSlices} * bytes];
      task.runs[1] = &data[64];
      task.out = sums.data();
      task.count = 2;
      task.slices = kSlices;
      task.slice_bytes = bytes;
      Checksums(task, nullptr);
      for (uint32_t run = 0; run < 2; ++run) {
        for (uint32_t slice = 0; slice < kSlices; ++slice) {
          const auto* at = static_cast<const std::byte*>(task.runs[run]) + size_t{slice} * bytes;
          EXPECT_EQ(sums[run * kSlices + slice], Crc32c({at, bytes}))
              << bytes << " bytes, run " << run << ", slice " << slice;
        }
      }
    }
  }
  simt::SetSchedule(simt::Schedule::kInOrder);
}

}  // namespace
}  // namespace baton::gpu
