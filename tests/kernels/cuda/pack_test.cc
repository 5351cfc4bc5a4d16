// SPDX-License-Identifier: Apache-2.0
// Weights that the device packs have the bytes of those that the host packs.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "common/base/half_float.h"
#include "kernels/cuda/device/device.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {
namespace {

using kernels::RandomMatrix;
using kernels::StoredMatrix;
using kernels::WeightType;

class GpuPackTest : public ::testing::TestWithParam<WeightType> {};

TEST_P(GpuPackTest, BytesAreThoseOfTheHost) {
  const uint32_t step = kernels::BlockInputs(GetParam()) == 256 ? 256 : 32;
  const StoredType type = *StoredTypeOf(GetParam());
  ASSERT_EQ(FormatOf(type), FormatOf(GetParam()));
  for (uint32_t outputs : {1u, 8u, 15u, 16u, 17u, 50u}) {
    for (uint32_t groups : {1u, 2u, 9u}) {
      const StoredMatrix matrix = RandomMatrix(GetParam(), outputs, groups * step, outputs);
      const auto expected = PackMatrix(matrix);
      constexpr std::byte kUntouched{0x5a};
      std::vector<std::byte> out(expected.size() + 64, kUntouched);
      PackWeights({type, matrix.data.data(), matrix.row_bytes, out.data(), outputs, matrix.inputs},
                  nullptr);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], i < expected.size() ? expected[i] : kUntouched)
            << kernels::WeightTypeName(GetParam()) << ", byte " << i << " of " << expected.size()
            << ", " << outputs << " outputs";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GpuPackTest,
                         ::testing::Values(WeightType::kF32, WeightType::kF16, WeightType::kBf16,
                                           WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                           WeightType::kQ4K),
                         [](const auto& test) { return kernels::WeightTypeName(test.param); });

TEST(GpuPack, OtherTypesAreWrittenOutByTheHost) {
  for (const WeightType type :
       {WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ5K, WeightType::kQ6K}) {
    EXPECT_FALSE(StoredTypeOf(type).has_value());
    EXPECT_EQ(FormatOf(type), WeightFormat::kBf16);
  }
}

// The emulator's own conversion, which scales of Q4_K go through.
TEST(GpuPack, HalvesAreRoundedAsOnTheHost) {
  std::mt19937 random(1);
  for (uint32_t i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(gpu::FloatToHalf(value), ::baton::FloatToHalf(value)) << value;
    const float small = static_cast<float>(random() % 100000) * 0x1p-34f;
    ASSERT_EQ(gpu::FloatToHalf(small), ::baton::FloatToHalf(small)) << small;
  }
}

}  // namespace
}  // namespace baton::gpu
