// SPDX-License-Identifier: Apache-2.0
// The fast linear formats against float64 products of the stored weights and
// of activations rounded by the documented rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tests/kernels/avx512/backend_under_test.h"
#include "tests/kernels/avx512/stored_weights.h"

namespace baton::kernels {
namespace {

using testing::AlignedArray;
using testing::RandomWeights;
using testing::StoredWeights;

using Rows = std::vector<std::vector<float>>;  // rows of equal width

bool IsBlockType(WeightType type) {
  return type != WeightType::kF32 && type != WeightType::kF16 && type != WeightType::kBf16;
}

Rows RandomRows(uint32_t rows, uint32_t inputs, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Rows x(rows, std::vector<float>(inputs));
  for (auto& row : x) {
    for (float& value : row) value = normal(random);
  }
  return x;
}

// What the format should compute for one output, and the sum of |a| |w|.
struct Expected {
  double value = 0, magnitude = 0;
};

// s8 rule: a value of a group of 32 that is more than twice as large as all
// others keeps its own precision (19 bits); the others are q * max / 127 with
// q = round(x * 127 / max), computed in float32.
std::vector<double> RoundGroup(std::vector<float> x) {
  const auto less = [](float a, float b) { return std::abs(a) < std::abs(b); };
  const auto largest = std::max_element(x.begin(), x.end(), less);
  const float limit = std::abs(*largest) * (1 / 2.0f);
  std::vector<double> rounded(x.size());
  if (std::abs(*largest) >= 1e-36f &&
      std::count_if(x.begin(), x.end(), [&](float v) { return std::abs(v) > limit; }) == 1) {
    const auto bits = std::bit_cast<uint32_t>(*largest) & ~31u;
    rounded[static_cast<size_t>(largest - x.begin())] = std::bit_cast<float>(bits);
    *largest = 0;
  }
  const float max = std::abs(*std::max_element(x.begin(), x.end(), less));
  if (max < 1e-36f) return rounded;
  for (size_t k = 0; k < x.size(); ++k) {
    rounded[k] += std::nearbyint(x[k] * (127 / max)) * (static_cast<double>(max) / 127);
  }
  return rounded;
}

double ToBf16AndBack(double value) { return testing::Bf16ToDouble(testing::DoubleToBf16(value)); }

// Q4_1 is computed with m + 8 d and with the sum of a group's activations in
// bf16: what that adds to the product of a group.
double MinimumError(const StoredWeights& w, uint32_t output, uint32_t group, double sum) {
  const std::byte* block = w.data.data() + output * w.row_bytes + size_t{group} * 20;
  uint16_t d, m;
  std::memcpy(&d, block, sizeof(d));
  std::memcpy(&m, block + 2, sizeof(m));
  const double minimum = testing::HalfToDouble(m) + 8 * testing::HalfToDouble(d);
  return ToBf16AndBack(static_cast<float>(minimum)) * ToBf16AndBack(static_cast<float>(sum)) -
         minimum * sum;
}

Expected ExpectS8(const StoredWeights& w, uint32_t output, const std::vector<float>& x) {
  Expected expected;
  for (uint32_t first = 0; first < w.inputs; first += kGroup) {
    const auto rounded = RoundGroup({x.begin() + first, x.begin() + first + kGroup});
    if (w.type == WeightType::kQ4_1) {
      const double sum = std::accumulate(rounded.begin(), rounded.end(), 0.0);
      expected.value += MinimumError(w, output, first / kGroup, sum);
    }
    for (uint32_t k = 0; k < kGroup; ++k) {
      const double weight = w.values[size_t{output} * w.inputs + first + k];
      expected.value += weight * rounded[k];
      expected.magnitude += std::abs(weight * x[first + k]);
    }
  }
  return expected;
}

Expected ExpectBf16(const StoredWeights& w, uint32_t output, const std::vector<float>& x) {
  Expected expected;
  for (uint32_t k = 0; k < w.inputs; ++k) {
    const double weight = ToBf16AndBack(w.values[size_t{output} * w.inputs + k]);
    const double value = ToBf16AndBack(x[k]);
    expected.value += weight * value;
    expected.magnitude += std::abs(weight * value);
  }
  return expected;
}

class LinearTest : public ::testing::TestWithParam<WeightType> {
 protected:
  void SetUp() override {
    if (testing::BackendUnderTest() == nullptr) {
      GTEST_SKIP() << "this CPU lacks AVX-512 with VNNI";
    }
    format_ = &testing::BackendUnderTest()->Linear(GetParam(), Precision::kFast);
  }

  // `inputs` rounded up to whole blocks.
  static uint32_t Whole(uint32_t inputs) {
    const uint32_t block = testing::BlockInputs(GetParam());
    return (inputs + block - 1) / block * block;
  }

  std::vector<uint32_t> Sizes() const {
    if (testing::BlockInputs(GetParam()) == 256) return {256, 512, 1536};
    if (IsBlockType(GetParam())) return {32, 64, 96, 576, 1536};
    return {1, 31, 32, 33, 100, 576, 1537};
  }

  Expected Expect(const StoredWeights& w, uint32_t output, const std::vector<float>& x) const {
    return IsBlockType(GetParam()) ? ExpectS8(w, output, x) : ExpectBf16(w, output, x);
  }

  AlignedArray<std::byte> Pack(const StoredWeights& w) const {
    AlignedArray<std::byte> panel(format_->PanelBytes(w.inputs));
    format_->PackPanel(w.rows(), panel.data());
    return panel;
  }

  // Product of a panel with `x` as one tile: [rows, 32].
  std::vector<float> Multiply(AlignedArray<std::byte>& panel, const Rows& x,
                              const std::byte* next = nullptr, size_t next_bytes = 0) const {
    const auto inputs = static_cast<uint32_t>(x[0].size());
    const auto rows = static_cast<uint32_t>(x.size());
    const ActivationFormat& activation = format_->activation();
    AlignedArray<std::byte> tile(activation.TileBytes(inputs));
    const uint32_t padded = activation.PaddedInputs(inputs);
    for (uint32_t r = 0; r < rows; ++r) {
      std::vector<float> row = x[r];
      row.resize(padded);
      for (uint32_t g = 0; g < padded / kGroup; ++g) {
        activation.PackGroup(&row[g * kGroup], tile.data(), inputs, rows, r, g);
      }
    }
    AlignedArray<float> out(size_t{rows} * kPanelOutputs);
    format_->Multiply(panel.data(), inputs, tile.data(), rows, out.data(), next, next_bytes);
    return {out.data(), out.data() + out.size()};
  }

  void CheckAgainstReference(const StoredWeights& w, const Rows& x) {
    AlignedArray<std::byte> panel = Pack(w);
    const std::vector<float> out = Multiply(panel, x);
    for (size_t r = 0; r < x.size(); ++r) {
      for (uint32_t c = 0; c < w.outputs; ++c) {
        const Expected expected = Expect(w, c, x[r]);
        // 1e-33: bf16 instructions and tiny groups take denormals as zero.
        ASSERT_NEAR(out[r * kPanelOutputs + c], expected.value, 1e-5 * expected.magnitude + 1e-33)
            << "inputs " << w.inputs << ", rows " << x.size() << ", row " << r << ", output " << c;
      }
    }
  }

  const LinearFormat* format_ = nullptr;
};

TEST_P(LinearTest, AgreesWithReferenceAtEverySizeAndTileHeight) {
  for (uint32_t inputs : Sizes()) {
    const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, inputs, inputs);
    for (uint32_t rows = 1; rows <= kTileRows; ++rows) {
      CheckAgainstReference(w, RandomRows(rows, inputs, 1, rows));
    }
  }
}

TEST_P(LinearTest, AgreesWithReferenceForLargeTinyAndMixedActivations) {
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, Whole(96), 1);
  CheckAgainstReference(w, RandomRows(6, Whole(96), 1e4f, 2));
  CheckAgainstReference(w, RandomRows(6, Whole(96), 1e-25f, 3));
  CheckAgainstReference(w, RandomRows(6, Whole(96), 1e-39f, 4));  // denormals
  Rows mixed = RandomRows(6, Whole(96), 1, 5);
  for (auto& row : mixed) {
    for (uint32_t k = 0; k < 32; ++k) row[k] *= 1e-40f;
    for (uint32_t k = 32; k < 64; ++k) row[k] = (k == 40) ? 3e4f : 0;
  }
  CheckAgainstReference(w, mixed);
}

TEST_P(LinearTest, AgreesWithReferenceWithOutliersAtEveryPlace) {
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, Whole(576), 20);
  for (uint32_t rows = 1; rows <= kTileRows; ++rows) {
    Rows x = RandomRows(rows, Whole(576), 1, 21);
    for (uint32_t r = 0; r < rows; ++r) {
      // Row 0 has one in every group, row r in every (r + 1)th.
      for (uint32_t g = 0; g < w.inputs / 32; g += r + 1)
        x[r][g * 32 + (g + 5 * r) % 32] = g % 2 ? 1e3f : -77;
    }
    CheckAgainstReference(w, x);
  }
}

TEST_P(LinearTest, IsExactToFloatForActivationsThatNeedNoRounding) {
  // Multiples of 2^-7 with a maximum of 127 * 2^-7 are themselves in s8 and in
  // bf16. So are the weights of all types but F32 and F16, which are rounded;
  // Q4_1 rounds a part of its minima to bf16.
  const double tolerance = GetParam() == WeightType::kQ4_1 ? 2e-3 : 1e-6;
  const bool rounds = GetParam() == WeightType::kF32 || GetParam() == WeightType::kF16;
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, Whole(576), 6);
  std::mt19937 random(7);
  Rows x(5, std::vector<float>(w.inputs));
  for (auto& row : x) {
    for (float& value : row) value = (static_cast<int>(random() % 255) - 127) / 128.0f;
    for (uint32_t g = 0; g < w.inputs / 32; ++g) row[g * 32 + g] = 127 / 128.0f;
  }
  AlignedArray<std::byte> panel = Pack(w);
  const std::vector<float> out = Multiply(panel, x);
  for (size_t r = 0; r < x.size(); ++r) {
    for (uint32_t c = 0; c < kPanelOutputs; ++c) {
      double value = 0, magnitude = 0;
      for (uint32_t k = 0; k < w.inputs; ++k) {
        const double stored = w.values[c * w.inputs + k];
        const double weight =
            rounds ? testing::Bf16ToDouble(testing::DoubleToBf16(stored)) : stored;
        value += weight * x[r][k];
        magnitude += std::abs(weight * x[r][k]);
      }
      ASSERT_NEAR(out[r * kPanelOutputs + c], value, tolerance * magnitude) << r << ", " << c;
    }
  }
}

TEST_P(LinearTest, RowHasTheSameBitsAtEveryPlaceOfEveryTile) {
  const uint32_t inputs = IsBlockType(GetParam()) ? Whole(160) : 150;
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, inputs, 8);
  AlignedArray<std::byte> panel = Pack(w);
  const Rows probe = RandomRows(1, inputs, 1, 9);
  const std::vector<float> alone = Multiply(panel, probe);
  for (uint32_t rows = 2; rows <= kTileRows; ++rows) {
    for (uint32_t place = 0; place < rows; ++place) {
      Rows x = RandomRows(rows, inputs, 30, 10 + rows);
      x[place] = probe[0];
      const std::vector<float> out = Multiply(panel, x);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.begin() + place * kPanelOutputs))
          << "row " << place << " of " << rows;
    }
  }
}

TEST_P(LinearTest, PrefetchedMemoryDoesNotChangeBits) {
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, Whole(96), 11);
  AlignedArray<std::byte> panel = Pack(w), next(10000);
  const Rows x = RandomRows(4, Whole(96), 1, 12);
  const std::vector<float> plain = Multiply(panel, x);
  for (size_t bytes : {0, 1, 63, 64, 1000, 10000}) {
    EXPECT_EQ(Multiply(panel, x, next.data(), bytes), plain) << bytes;
  }
}

TEST_P(LinearTest, ZeroActivationsGiveZero) {
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, Whole(64), 13);
  AlignedArray<std::byte> panel = Pack(w);
  for (float value : Multiply(panel, Rows(6, std::vector<float>(Whole(64))))) EXPECT_EQ(value, 0);
}

TEST_P(LinearTest, MissingOutputsArePackedAsZeros) {
  const StoredWeights w = RandomWeights(GetParam(), 7, Whole(64), 14);
  const Rows x = RandomRows(3, Whole(64), 1, 15);
  CheckAgainstReference(w, x);
  AlignedArray<std::byte> panel = Pack(w);
  const std::vector<float> out = Multiply(panel, x);
  for (size_t r = 0; r < 3; ++r) {
    for (size_t c = 7; c < kPanelOutputs; ++c) EXPECT_EQ(out[r * kPanelOutputs + c], 0);
  }
}

TEST_P(LinearTest, NotANumberInARowMakesThatRowAndNoOtherNotANumber) {
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, Whole(96), 16);
  AlignedArray<std::byte> panel = Pack(w);
  const Rows good = RandomRows(kTileRows, Whole(96), 1, 17);
  const std::vector<float> expected = Multiply(panel, good);
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Rows x = good;
    x[2][50] = bad;
    const std::vector<float> out = Multiply(panel, x);
    for (size_t i = 0; i < out.size(); ++i) {
      if (i / kPanelOutputs == 2) {
        EXPECT_FALSE(std::isfinite(out[i])) << i;
      } else {
        EXPECT_EQ(out[i], expected[i]) << i;
      }
    }
  }
}

TEST_P(LinearTest, OverflowOfARowStaysInThatRow) {
  const StoredWeights w = RandomWeights(GetParam(), kPanelOutputs, Whole(96), 18);
  AlignedArray<std::byte> panel = Pack(w);
  Rows x = RandomRows(kTileRows, Whole(96), 1, 19);
  const std::vector<float> expected = Multiply(panel, x);
  for (uint32_t k = 0; k < 96; ++k) x[4][k] = k % 3 == 0 ? -3e38f : 3e38f;
  const std::vector<float> out = Multiply(panel, x);
  for (size_t i = 0; i < out.size(); ++i) {
    if (i / kPanelOutputs == 4) continue;
    EXPECT_EQ(out[i], expected[i]) << i;
  }
}

std::string TypeName(const ::testing::TestParamInfo<WeightType>& type) {
  static constexpr const char* kNames[] = {"F32",  "F16",  "Bf16", "Q8_0", "Q4_0", "Q4_1",
                                           "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
  return kNames[static_cast<int>(type.param)];
}

INSTANTIATE_TEST_SUITE_P(Avx512, LinearTest,
                         ::testing::Values(WeightType::kF32, WeightType::kF16, WeightType::kBf16,
                                           WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                           WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4K,
                                           WeightType::kQ5K, WeightType::kQ6K),
                         TypeName);

}  // namespace
}  // namespace baton::kernels
