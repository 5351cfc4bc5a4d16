// SPDX-License-Identifier: Apache-2.0
// The matrix kernel in every weight format and tile, against float64 sums over
// the weights as they are held.
#include <gtest/gtest.h>

#include <algorithm>
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

// What the packed matrix stands for, [outputs, inputs].
std::vector<float> HeldWeights(const StoredMatrix& matrix) {
  std::vector<float> held(size_t{matrix.outputs} * matrix.inputs);
  const kernels::WeightRows rows{matrix.type, matrix.data.data(), matrix.row_bytes, matrix.outputs,
                                 matrix.inputs};
  for (uint32_t o = 0; o < matrix.outputs; ++o) {
    kernels::DequantizeRow(rows, o, &held[size_t{o} * matrix.inputs]);
  }
  return FormatOf(matrix.type) == WeightFormat::kBf16 ? ThroughBf16(held) : held;
}

LinearTask TaskOf(const StoredMatrix& matrix, const std::vector<std::byte>& weights,
                  const std::vector<uint16_t>& rows, uint32_t count, Epilogue epilogue,
                  const float* bias, void* out) {
  return {FormatOf(matrix.type), epilogue, weights.data(), rows.data(),  bias, out,
          matrix.outputs,        count,    matrix.outputs, matrix.inputs};
}

std::vector<float> Multiply(const StoredMatrix& matrix, std::span<const float> x, uint32_t rows,
                            const float* bias = nullptr) {
  const auto weights = PackMatrix(matrix);
  const auto packed = PackActivations(x, rows, matrix.inputs);
  const size_t size = size_t{rows} * matrix.outputs;
  std::vector<float> out(size + 2 * matrix.outputs, 7);
  Linear(TaskOf(matrix, weights, packed, rows, Epilogue::kStore, bias, out.data()), nullptr);
  // Nothing behind the last row.
  EXPECT_EQ(std::count(out.begin() + static_cast<std::ptrdiff_t>(size), out.end(), 7.0f),
            2 * matrix.outputs);
  out.resize(size);
  return out;
}

void ExpectProduct(const StoredMatrix& matrix, uint32_t rows) {
  const auto x = ThroughBf16(RandomFloats(size_t{rows} * matrix.inputs, rows));
  const auto bias = RandomFloats(matrix.outputs, 99);
  const auto out = Multiply(matrix, x, rows, bias.data());
  const auto held = HeldWeights(matrix);
  // Q4_K's scales and minima are rounded to float16.
  const double tolerance = matrix.type == WeightType::kQ4K ? 2e-3 : 1e-5;
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t o = 0; o < matrix.outputs; ++o) {
      double sum = bias[o], size = std::abs(sum);
      for (uint32_t i = 0; i < matrix.inputs; ++i) {
        const double term = static_cast<double>(held[size_t{o} * matrix.inputs + i]) *
                            x[size_t{r} * matrix.inputs + i];
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(out[size_t{r} * matrix.outputs + o], sum, tolerance * size)
          << kernels::WeightTypeName(matrix.type) << ", row " << r << " of " << rows << ", output "
          << o << " of " << matrix.outputs << ", " << matrix.inputs << " inputs";
    }
  }
}

class GpuLinearTest : public ::testing::TestWithParam<WeightType> {};

TEST_P(GpuLinearTest, AgreesForEveryRowCountAndTile) {
  const uint32_t step = kernels::BlockInputs(GetParam()) == 256 ? 256 : 32;
  const StoredMatrix matrix = RandomMatrix(GetParam(), 40, 3 * step, 1);
  for (uint32_t rows : {1u, 2u, 7u, 8u, 9u, 32u, 33u, 65u}) ExpectProduct(matrix, rows);
}

TEST_P(GpuLinearTest, AgreesForEverySizeOfAMatrix) {
  const uint32_t step = kernels::BlockInputs(GetParam()) == 256 ? 256 : 32;
  for (uint32_t outputs : {1u, 15u, 16u, 17u, 31u, 33u, 129u, 144u}) {
    ExpectProduct(RandomMatrix(GetParam(), outputs, step, 2), 3);
  }
  for (uint32_t groups : {1u, 4u, 5u, 17u, 24u, 25u}) {
    ExpectProduct(RandomMatrix(GetParam(), 16, groups * step, 3), 2);
  }
}

// One row has the same bits in each of the three tiles and beside any other.
TEST_P(GpuLinearTest, RowHasTheSameBitsAmongAnyOthers) {
  const uint32_t inputs = 256 * 2;
  const StoredMatrix matrix = RandomMatrix(GetParam(), 48, inputs, 4);
  const auto x = RandomFloats(70 * size_t{inputs}, 5);
  const auto all = Multiply(matrix, x, 70);
  for (uint32_t rows : {1u, 8u, 20u}) {
    for (uint32_t first : {0u, 13u, 50u}) {
      const auto some = Multiply(
          matrix, std::span(x).subspan(size_t{first} * inputs, size_t{rows} * inputs), rows);
      const auto begin = all.begin() + first * 48;
      EXPECT_TRUE(std::equal(some.begin(), some.end(), begin)) << rows << " rows from " << first;
    }
  }
}

TEST_P(GpuLinearTest, AddsToTheResidual) {
  const StoredMatrix matrix = RandomMatrix(GetParam(), 48, 256, 6);
  for (uint32_t rows : {3u, 40u}) {
    const auto x = RandomFloats(rows * 256, 7);
    const auto product = Multiply(matrix, x, rows);
    const auto before = RandomFloats(size_t{rows} * 48, 8);
    auto residual = before;
    const auto weights = PackMatrix(matrix);
    const auto packed = PackActivations(x, rows, 256);
    Linear(TaskOf(matrix, weights, packed, rows, Epilogue::kAdd, nullptr, residual.data()),
           nullptr);
    for (size_t i = 0; i < residual.size(); ++i) ASSERT_EQ(residual[i], before[i] + product[i]);
  }
}

TEST_P(GpuLinearTest, SwiGluOfGatesAndUps) {
  const StoredMatrix matrix = RandomMatrix(GetParam(), 64, 256, 9);
  for (uint32_t rows : {3u, 40u}) {
    const auto x = RandomFloats(rows * 256, 10, 3);
    const auto product = Multiply(matrix, x, rows);
    const auto weights = PackMatrix(matrix);
    const auto packed = PackActivations(x, rows, 256);
    std::vector<uint16_t> out(ActivationBytes(rows, 32) / 2);
    Linear(TaskOf(matrix, weights, packed, rows, Epilogue::kSwiGlu, nullptr, out.data()), nullptr);
    for (uint32_t r = 0; r < rows; ++r) {
      const auto actual = ActivationRow(out, r, 32);
      for (uint32_t i = 0; i < 32; ++i) {
        const size_t gate_at = size_t{r} * 64 + i / 8 * 16 + i % 8;
        const double gate = product[gate_at], up = product[gate_at + 8];
        const double expected = gate / (1 + std::exp(-gate)) * up;
        ASSERT_NEAR(actual[i], expected, 0.0042 * std::abs(expected) + 1e-6);
      }
    }
  }
}

TEST_P(GpuLinearTest, BitsAreTheSameInEverySchedule) {
  const StoredMatrix matrix = RandomMatrix(GetParam(), 40, 768, 11);
  for (uint32_t rows : {5u, 40u}) {
    const auto x = RandomFloats(rows * 768, 12);
    const auto expected = Multiply(matrix, x, rows);
    for (auto schedule : kSchedules) {
      const WithSchedule scope(schedule);
      EXPECT_EQ(Multiply(matrix, x, rows), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuLinearTest,
                         ::testing::Values(WeightType::kF32, WeightType::kBf16, WeightType::kQ8_0,
                                           WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ4K,
                                           WeightType::kQ6K),
                         [](const auto& test) { return kernels::WeightTypeName(test.param); });

}  // namespace
}  // namespace baton::gpu
