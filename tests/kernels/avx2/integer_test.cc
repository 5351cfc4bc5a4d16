// SPDX-License-Identifier: Apache-2.0
// The traps of integer products without VNNI: vpmaddubsw saturates, sums of
// s16 wrap, outliers are found and listed by other instructions. Everything
// else is covered by the suites that run over all backends.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/packing/dequantize.h"
#include "tests/kernels/kernel_inputs.h"

namespace baton::kernels {
namespace {

constexpr uint32_t kInputs = 32 * kGroup, kOutputs = kPanelOutputs;

class Avx2IntegerTest : public ::testing::TestWithParam<WeightType> {
 protected:
  void SetUp() override {
    backend_ = FindBackend("avx2");
    if (backend_ == nullptr) GTEST_SKIP() << "this CPU lacks AVX2, FMA or F16C";
  }
  const LinearFormat& format() const { return backend_->Linear(GetParam(), Precision::kFast); }

  // Products that need no rounding of activations are exact but for the
  // float32 sums over groups.
  void ExpectExact(const StoredMatrix& matrix, std::span<const float> x, uint32_t rows) const {
    const auto actual = MultiplyTile(format(), matrix, x, rows);
    std::vector<float> weights(matrix.inputs);
    for (uint32_t c = 0; c < matrix.outputs; ++c) {
      DequantizeRow(matrix.Panel(0), c, weights.data());
      for (uint32_t r = 0; r < rows; ++r) {
        double expected = 0, magnitude = 0;
        for (uint32_t k = 0; k < matrix.inputs; ++k) {
          const double product = double{weights[k]} * x[size_t{r} * matrix.inputs + k];
          expected += product;
          magnitude += std::abs(product);
        }
        ASSERT_NEAR(actual[size_t{r} * matrix.outputs + c], expected, 1e-6 * magnitude)
            << "row " << r << " of " << rows << ", output " << c;
      }
    }
  }

  const Backend* backend_ = nullptr;
};

// Whether byte `at` of a stored block is one of codes, not of scales.
bool HoldsCodes(WeightType type, size_t at) {
  switch (type) {
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
      return at >= 4;
    case WeightType::kQ4K:
    case WeightType::kQ5K:
      return at >= 16;
    case WeightType::kQ6K:
      return at < 192;
    default:
      return at >= 2;
  }
}

// Every code byte of the rows becomes a, or a and b in turn; even rows get the
// pattern shifted by one, so that neighbours in a pair agree and differ.
void FillCodes(uint8_t a, uint8_t b, StoredMatrix* matrix) {
  const size_t block = matrix->row_bytes / (matrix->inputs / BlockInputs(matrix->type));
  for (size_t at = 0; at < matrix->data.size(); ++at) {
    if (!HoldsCodes(matrix->type, at % block)) continue;
    const size_t pattern = at % block + at / matrix->row_bytes;
    matrix->data[at] = static_cast<std::byte>(pattern % 2 == 0 ? a : b);
  }
}

TEST_P(Avx2IntegerTest, ExtremeCodesTimesExtremeActivationsAreExact) {
  StoredMatrix matrix = RandomMatrix(GetParam(), kOutputs, 2 * BlockInputs(GetParam()), 1);
  // Rows at +127 and -127 in every arrangement of signs within a quad.
  std::vector<float> x(size_t{kTileRows} * matrix.inputs);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / matrix.inputs, place = i % 4;
    const bool negative[kTileRows] = {false,     true,       place % 2 == 1,
                                      place < 2, place == 3, i % 3 == 0};
    x[i] = negative[row] ? -127.0f / 128 : 127.0f / 128;
  }
  for (uint8_t a : {0x00, 0xff, 0x0f, 0xf0, 0x7f, 0x80, 0x81}) {
    for (uint8_t b : {0x00, 0xff, 0x7f, 0x80}) {
      FillCodes(a, b, &matrix);
      ExpectExact(matrix, x, kTileRows);
    }
  }
}

TEST_P(Avx2IntegerTest, OutliersAtEveryPlaceOfEveryTileAreExact) {
  const StoredMatrix matrix = RandomMatrix(GetParam(), kOutputs, kInputs, 2);
  for (uint32_t rows = 1; rows <= kTileRows; ++rows) {
    // Multiples of 1/128 up to 127/128 need no rounding; row r has an outlier
    // in every (r + 1)th group, never in the place of the largest other.
    std::vector<float> x(size_t{rows} * kInputs);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i * 37 % 255) / 128 - 127 / 128.0f;
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t g = 0; g < kInputs / kGroup; ++g) {
        float* group = &x[r * kInputs + g * kGroup];
        group[(g + 7) % kGroup] = 127 / 128.0f;
        if (g % (r + 1) == 0) group[(g + 5 * r) % kGroup] = g % 2 == 0 ? 1000.0f : -77.5f;
      }
    }
    ExpectExact(matrix, x, rows);
  }
}

TEST_P(Avx2IntegerTest, InfinityStaysInItsRow) {
  const StoredMatrix matrix = RandomMatrix(GetParam(), kOutputs, 3 * BlockInputs(GetParam()), 5);
  auto x = RandomFloats(size_t{3} * matrix.inputs, 6);
  const auto clean = MultiplyTile(format(), matrix, x, 3);
  x[matrix.inputs + 40] = std::numeric_limits<float>::infinity();
  const auto dirty = MultiplyTile(format(), matrix, x, 3);
  for (uint32_t c = 0; c < kOutputs; ++c) {
    EXPECT_EQ(dirty[c], clean[c]);
    EXPECT_FALSE(std::isfinite(dirty[kOutputs + c])) << c;
    EXPECT_EQ(dirty[2 * kOutputs + c], clean[2 * kOutputs + c]);
  }
}

INSTANTIATE_TEST_SUITE_P(BlockTypes, Avx2IntegerTest,
                         ::testing::Values(WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                           WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4K,
                                           WeightType::kQ5K, WeightType::kQ6K),
                         [](const auto& test) { return WeightTypeName(test.param); });

TEST(Avx2Backend, StandsBetweenAvx512AndGeneric) {
  std::string names;
  for (const Backend* backend : Backends()) names += std::string(backend->name()) + " ";
#if defined(__x86_64__)
  EXPECT_EQ(names, "avx512 avx512vnni avx2 generic ref ");
#else
  EXPECT_EQ(names, "generic ref ");
#endif
}

}  // namespace
}  // namespace baton::kernels
