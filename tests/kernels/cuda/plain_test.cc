// SPDX-License-Identifier: Apache-2.0
// From fragments to the plain rows that the vendor's matrix library takes.
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/half_float.h"
#include "kernels/packing/dequantize.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {
namespace {

using kernels::RandomFloats;
using kernels::RandomMatrix;
using kernels::StoredMatrix;
using kernels::WeightType;

constexpr uint16_t kUntouched = 0x1234;

// Room for a row more, which must stay as it is.
std::vector<uint16_t> Room(uint32_t rows, uint32_t inputs) {
  return std::vector<uint16_t>(size_t{rows + 1} * inputs, kUntouched);
}

void ExpectUntouchedBehind(const std::vector<uint16_t>& plain, uint32_t rows, uint32_t inputs) {
  for (size_t i = size_t{rows} * inputs; i < plain.size(); ++i) ASSERT_EQ(plain[i], kUntouched);
}

std::vector<uint16_t> PlainOf(std::span<const float> x, uint32_t rows, uint32_t inputs) {
  const auto packed = PackActivations(x, rows, inputs);
  auto plain = Room(rows, inputs);
  PlainRows({packed.data(), plain.data(), rows, inputs}, nullptr);
  return plain;
}

TEST(GpuPlain, RowsHoldEveryInputOnce) {
  for (uint32_t inputs : {32u, 96u, 576u}) {
    for (uint32_t rows : {1u, 7u, 8u, 9u, 17u}) {
      const auto x = RandomFloats(size_t{rows} * inputs, 1);
      const auto plain = PlainOf(x, rows, inputs);
      for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t i = 0; i < inputs; ++i) {
          ASSERT_EQ(plain[PlainIndex(r, i, inputs)], FloatToBf16(x[size_t{r} * inputs + i]));
        }
      }
      ExpectUntouchedBehind(plain, rows, inputs);
    }
  }
}

TEST(GpuPlain, PlacesOfARowAreARunOfItsInputs) {
  constexpr uint32_t kInputs = 64;
  std::vector<int> times(2 * kInputs);
  for (uint32_t row = 0; row < 2; ++row) {
    for (uint32_t i = 0; i < kInputs; ++i) {
      const size_t at = PlainIndex(row, i, kInputs);
      ASSERT_EQ(at / kInputs, row);
      ASSERT_EQ(at % kInputs / kGroupInputs, i / kGroupInputs);
      ++times[at];
    }
  }
  EXPECT_EQ(times, std::vector<int>(2 * kInputs, 1));
}

class GpuUnpackTest : public ::testing::TestWithParam<WeightType> {};

TEST_P(GpuUnpackTest, WeightsAreThoseThatAreHeldUpToBf16) {
  const uint32_t step = kernels::BlockInputs(GetParam()) == 256 ? 256 : 32;
  for (uint32_t outputs : {1u, 15u, 16u, 40u}) {
    for (uint32_t groups : {1u, 3u, 9u}) {
      const StoredMatrix matrix = RandomMatrix(GetParam(), outputs, groups * step, 2);
      const auto packed = PackMatrix(matrix);
      auto plain = Room(outputs, matrix.inputs);
      UnpackWeights({FormatOf(matrix.type), packed.data(), plain.data(), outputs, matrix.inputs},
                    nullptr);
      const kernels::WeightRows rows{matrix.type, matrix.data.data(), matrix.row_bytes, outputs,
                                     matrix.inputs};
      std::vector<float> held(matrix.inputs);
      // Q4_K's scales and minima were rounded to float16 before.
      const float slack = matrix.type == WeightType::kQ4K ? 1e-3f : 1e-6f;
      for (uint32_t o = 0; o < outputs; ++o) {
        kernels::DequantizeRow(rows, o, held.data());
        for (uint32_t i = 0; i < matrix.inputs; ++i) {
          ASSERT_NEAR(Bf16ToFloat(plain[PlainIndex(o, i, matrix.inputs)]), held[i],
                      0.006f * std::abs(held[i]) + slack)
              << "output " << o << ", input " << i;
        }
      }
      ExpectUntouchedBehind(plain, outputs, matrix.inputs);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuUnpackTest,
                         ::testing::Values(WeightType::kF32, WeightType::kBf16, WeightType::kQ8_0,
                                           WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ4K),
                         [](const auto& test) { return kernels::WeightTypeName(test.param); });

TEST(GpuPlain, SwiGluIsThatOfTheEpilogue) {
  for (uint32_t inputs : {32u, 96u, 2080u}) {
    constexpr uint32_t kRows = 3;
    const auto products = RandomFloats(size_t{kRows} * inputs * 2, 4, 3);
    auto plain = Room(kRows, inputs);
    SwiGlu({products.data(), plain.data(), kRows, inputs}, nullptr);
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t i = 0; i < inputs; ++i) {
        const size_t gate_at = size_t{r} * inputs * 2 + i / 8 * 16 + i % 8;
        const double gate = products[gate_at], up = products[gate_at + 8];
        const double expected = gate / (1 + std::exp(-gate)) * up;
        ASSERT_NEAR(Bf16ToFloat(plain[PlainIndex(r, i, inputs)]), expected,
                    0.0042 * std::abs(expected) + 1e-6);
      }
    }
    ExpectUntouchedBehind(plain, kRows, inputs);
  }
}

TEST(GpuPlain, NormWritesThemToo) {
  constexpr uint32_t kRows = 5, kHidden = 96;
  const auto x = RandomFloats(kRows * kHidden, 5), weight = RandomFloats(kHidden, 6);
  std::vector<uint16_t> packed(ActivationBytes(kRows, kHidden) / 2);
  auto plain = Room(kRows, kHidden);
  NormTask task{x.data(), weight.data(), nullptr, packed.data(), kRows, kHidden, 1e-5f, false};
  RmsNorm(task, nullptr);
  task.out = plain.data();
  task.plain = true;
  RmsNorm(task, nullptr);
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t i = 0; i < kHidden; ++i) {
      ASSERT_EQ(plain[PlainIndex(r, i, kHidden)], packed[ActivationIndex(r, i, GroupsOf(kHidden))]);
    }
  }
  ExpectUntouchedBehind(plain, kRows, kHidden);
}

}  // namespace
}  // namespace baton::gpu
