// SPDX-License-Identifier: Apache-2.0
// Rotation, KV append and queries: bit for bit what the CPU's generic kernels
// give for the same numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "common/base/half_float.h"
#include "kernels/api/backend.h"
#include "kernels/packing/kv_slices.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {
namespace {

using kernels::RandomFloats;

struct Shape {
  uint32_t heads, kv_heads, head_dim, rotary_dims;
  RopePairs pairs;
  KvElement element;

  uint32_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  const kernels::AttentionFormat& format() const {
    return kernels::FindBackend("generic")->Attention(
        element == KvElement::kInt8 ? kernels::KvElement::kInt8 : kernels::KvElement::kBf16);
  }
  size_t slice_bytes() const { return kernels::KvSliceBytes(format().element(), head_dim); }
  size_t layer_bytes() const { return 2 * slice_bytes() * kv_heads; }
};

// A step of rows at positions, their tokens in blocks of a pool of two layers.
struct Step {
  std::vector<int32_t> positions;
  std::vector<uint32_t> blocks;
  std::vector<float> qkv, angles;
  uint32_t context;
};

constexpr uint32_t kPoolBlocks = 6;

Step MakeStep(const Shape& shape, std::vector<int32_t> positions, std::vector<uint32_t> blocks,
              float scale = 1) {
  Step step{positions, blocks, RandomFloats(positions.size() * shape.width(), 1, scale), {}, 100};
  const uint32_t half = shape.rotary_dims / 2;
  const auto random = RandomFloats(size_t{step.context} * half, 2, 3);
  step.angles.resize(2 * random.size());
  for (size_t i = 0; i < random.size(); ++i) {
    step.angles[i] = std::cos(random[i]);
    step.angles[random.size() + i] = std::sin(random[i]);
  }
  return step;
}

float ScaleOf(const Shape& shape) {
  return static_cast<float>(std::numbers::log2e / std::sqrt(shape.head_dim));
}

struct Result {
  std::vector<std::byte> pool;
  std::vector<uint16_t> q;
};

Result OnGpu(const Shape& shape, const Step& step) {
  const auto rows = static_cast<uint32_t>(step.positions.size());
  Result result{std::vector<std::byte>(kPoolBlocks * 2 * shape.layer_bytes()),
                std::vector<uint16_t>(size_t{rows} * shape.heads * shape.head_dim)};
  QkvTask task{};
  task.qkv = step.qkv.data();
  task.angles = step.angles.data();
  task.sines_at = step.angles.size() / 2;
  task.positions = step.positions.data();
  task.blocks = step.blocks.data();
  task.q = result.q.data();
  task.pool = {shape.element,       result.pool.data(), 2 * shape.layer_bytes(),
               shape.layer_bytes(), shape.kv_heads,     static_cast<uint32_t>(shape.slice_bytes()),
               shape.head_dim};
  task.pairs = shape.pairs;
  task.rows = rows;
  task.heads = shape.heads;
  task.rotary_dims = shape.rotary_dims;
  task.scale = ScaleOf(shape);
  RopeAppend(task, nullptr);
  return result;
}

Result OnCpu(const Shape& shape, const Step& step) {
  const kernels::Backend& backend = *kernels::FindBackend("generic");
  auto* rope = shape.pairs == RopePairs::kHalves ? backend.rope_halves : backend.rope_adjacent;
  const size_t rows = step.positions.size(), dim = shape.head_dim, half = shape.rotary_dims / 2;
  const uint32_t group = shape.heads / shape.kv_heads;
  Result result{std::vector<std::byte>(kPoolBlocks * 2 * shape.layer_bytes()),
                std::vector<uint16_t>(rows * shape.heads * dim)};
  for (size_t r = 0; r < rows; ++r) {
    if (step.positions[r] < 0) continue;
    const auto position = static_cast<uint32_t>(step.positions[r]);
    const std::span<const float> cos(&step.angles[position * half], half);
    const std::span<const float> sin(&step.angles[step.angles.size() / 2 + position * half], half);
    auto row =
        std::vector<float>(step.qkv.begin() + static_cast<std::ptrdiff_t>(r * shape.width()),
                           step.qkv.begin() + static_cast<std::ptrdiff_t>((r + 1) * shape.width()));
    for (uint32_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
      rope({&row[h * dim], shape.rotary_dims}, cos, sin);
    }
    for (uint32_t h = 0; h < shape.heads; ++h) {
      for (size_t d = 0; d < dim; ++d) row[h * dim + d] *= ScaleOf(shape);
      shape.format().PrepareQuery(&row[h * dim], shape.head_dim);
      const size_t packed = (h / group * rows + r) * group + h % group;
      for (size_t d = 0; d < dim; ++d) {
        result.q[packed * dim + d] = FloatToBf16(row[h * dim + d]);
      }
    }
    std::byte* layer = result.pool.data() + (2 * step.blocks[r] + 1) * shape.layer_bytes();
    for (uint32_t h = 0; h < shape.kv_heads; ++h) {
      shape.format().Append(&row[(shape.heads + h) * dim],
                            &row[(shape.heads + shape.kv_heads + h) * dim], shape.head_dim,
                            position % kBlockTokens, layer + h * shape.slice_bytes(),
                            layer + (shape.kv_heads + h) * shape.slice_bytes());
    }
  }
  return result;
}

void ExpectEqual(const Shape& shape, const Step& step) {
  const Result gpu = OnGpu(shape, step), cpu = OnCpu(shape, step);
  EXPECT_EQ(gpu.q, cpu.q);
  EXPECT_TRUE(gpu.pool == cpu.pool) << "head size " << shape.head_dim;
}

class GpuQkvTest : public ::testing::TestWithParam<KvElement> {};

TEST_P(GpuQkvTest, BitsAreThoseOfTheCpuForEveryShape) {
  for (const auto pairs : {RopePairs::kAdjacent, RopePairs::kHalves}) {
    for (uint32_t head_dim : {16u, 48u, 64u, 128u}) {
      for (uint32_t rotary : {head_dim / 2, head_dim}) {
        for (uint32_t group : {1u, 2u, 3u, 16u}) {
          const Shape shape{2 * group, 2, head_dim, rotary, pairs, GetParam()};
          ExpectEqual(shape, MakeStep(shape, {0, 31, 32, 99, 33}, {0, 5, 1, 3, 4}));
        }
      }
    }
  }
}

TEST_P(GpuQkvTest, AllTokensOfABlockInOneStep) {
  const Shape shape{6, 2, 16, 8, RopePairs::kAdjacent, GetParam()};
  std::vector<int32_t> positions(kBlockTokens);
  for (uint32_t t = 0; t < kBlockTokens; ++t) positions[t] = static_cast<int32_t>(t);
  ExpectEqual(shape, MakeStep(shape, positions, std::vector<uint32_t>(kBlockTokens, 2)));
}

TEST_P(GpuQkvTest, PaddedRowsWriteNothing) {
  const Shape shape{4, 2, 64, 64, RopePairs::kHalves, GetParam()};
  ExpectEqual(shape, MakeStep(shape, {-1, 5, -1}, {0xffffffff, 2, 0xffffffff}));
}

TEST_P(GpuQkvTest, TinyAndHugeNumbersRoundAsOnTheCpu) {
  const Shape shape{2, 2, 64, 32, RopePairs::kHalves, GetParam()};
  for (float scale : {1e-38f, 1e-31f, 1e-20f, 1e20f, 3e37f}) {
    ExpectEqual(shape, MakeStep(shape, {1, 40}, {0, 1}, scale));
  }
}

TEST_P(GpuQkvTest, BitsAreTheSameInEverySchedule) {
  const Shape shape{6, 2, 64, 64, RopePairs::kHalves, GetParam()};
  const Step step = MakeStep(shape, {3, 4, 5, 70}, {0, 0, 0, 2});
  const Result expected = OnGpu(shape, step);
  for (auto schedule : kSchedules) {
    const WithSchedule scope(schedule);
    const Result other = OnGpu(shape, step);
    EXPECT_EQ(other.q, expected.q);
    EXPECT_TRUE(other.pool == expected.pool);
  }
}

// An infinity shows in the slice (as a NaN scale), as on the CPU.
TEST(GpuQkv, InfinityInAKeyMakesItsScaleNan) {
  const Shape shape{2, 2, 16, 16, RopePairs::kHalves, KvElement::kInt8};
  Step step = MakeStep(shape, {3}, {0});
  step.qkv[2 * 16 + 5] = INFINITY;  // the first K head
  const Result gpu = OnGpu(shape, step);
  uint16_t bits;
  std::memcpy(&bits, gpu.pool.data() + shape.layer_bytes() + 32 * 16 + 3 * 2, 2);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(bits)));
}

INSTANTIATE_TEST_SUITE_P(Elements, GpuQkvTest,
                         ::testing::Values(KvElement::kBf16, KvElement::kInt8),
                         [](const auto& test) {
                           return test.param == KvElement::kInt8 ? "Int8" : "Bf16";
                         });

}  // namespace
}  // namespace baton::gpu
