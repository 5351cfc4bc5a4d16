// SPDX-License-Identifier: Apache-2.0
// One suite for every backend's linear formats; the oracle is a float64 sum
// over the dequantized weights.
#include "kernels/api/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/packing/dequantize.h"
#include "tests/kernels/kernel_inputs.h"

namespace baton::kernels {
namespace {

struct Case {
  const Backend* backend;
  WeightType type;
  Precision precision;
};

class LinearTest : public ::testing::TestWithParam<Case> {
 protected:
  const LinearFormat& format() const {
    return GetParam().backend->Linear(GetParam().type, GetParam().precision);
  }
  bool fast() const { return GetParam().precision == Precision::kFast; }
  // `inputs` rounded up to the whole blocks that rows of block types come in.
  static uint32_t Whole(uint32_t inputs) {
    const uint32_t block = BlockInputs(GetParam().type);
    return (inputs + block - 1) / block * block;
  }
  std::vector<uint32_t> InputCounts() const {
    if (BlockInputs(GetParam().type) == 256) return {256, 512, 768};
    if (IsBlockType(GetParam().type)) return {32, 96, 576, 160};
    return {1, 31, 33, 64, 100, 172, 576};
  }

  std::vector<float> Multiply(const StoredMatrix& matrix, std::span<const float> x,
                              uint32_t rows) const {
    return MultiplyTile(format(), matrix, x, rows);
  }
};

// One output by float64, and what its error is measured against.
struct Expected {
  double value = 0, magnitude = 0;
};
Expected Dot(std::span<const float> weights, std::span<const float> x) {
  Expected sum;
  double weight_squares = 0, x_squares = 0;
  for (size_t k = 0; k < weights.size(); ++k) {
    sum.value += static_cast<double>(weights[k]) * x[k];
    weight_squares += static_cast<double>(weights[k]) * weights[k];
    x_squares += static_cast<double>(x[k]) * x[k];
  }
  sum.magnitude = std::sqrt(weight_squares * x_squares);
  return sum;
}

TEST_P(LinearTest, AgreesWithFloat64AtEverySize) {
  // Activations of 8 bits per 32 values or bf16 are off by up to 1/254 each.
  const double tolerance = fast() ? 0.01 : 2e-6;
  for (uint32_t inputs : InputCounts()) {
    for (uint32_t outputs : {1u, 31u, 32u, 40u}) {
      const StoredMatrix matrix = RandomMatrix(GetParam().type, outputs, inputs, inputs + outputs);
      const auto x = RandomFloats(size_t{kTileRows} * inputs, inputs, 3);
      std::vector<float> weights(inputs);
      for (uint32_t rows = 1; rows <= kTileRows; ++rows) {
        const auto actual = Multiply(matrix, x, rows);
        for (uint32_t c = 0; c < outputs; ++c) {
          DequantizeRow(matrix.Panel(c / kPanelOutputs), c % kPanelOutputs, weights.data());
          for (uint32_t r = 0; r < rows; ++r) {
            const Expected expected = Dot(weights, std::span(x).subspan(r * inputs, inputs));
            ASSERT_NEAR(actual[size_t{r} * outputs + c], expected.value,
                        tolerance * expected.magnitude + 1e-30)
                << "inputs " << inputs << ", output " << c << " of " << outputs << ", row " << r
                << " of " << rows;
          }
        }
      }
    }
  }
}

TEST_P(LinearTest, RowHasTheSameBitsInEveryTile) {
  const uint32_t inputs = IsBlockType(GetParam().type) ? Whole(160) : 172, outputs = 40;
  const StoredMatrix matrix = RandomMatrix(GetParam().type, outputs, inputs, 1);
  const auto x = RandomFloats(size_t{kTileRows} * inputs, 2);
  std::vector<std::vector<float>> alone;
  for (uint32_t r = 0; r < kTileRows; ++r) {
    alone.push_back(Multiply(matrix, std::span(x).subspan(r * inputs, inputs), 1));
  }
  for (uint32_t rows = 2; rows <= kTileRows; ++rows) {
    for (uint32_t first = 0; first + rows <= kTileRows; ++first) {
      const auto together = Multiply(matrix, std::span(x).subspan(first * inputs), rows);
      for (uint32_t r = 0; r < rows; ++r) {
        ASSERT_EQ(std::memcmp(&together[size_t{r} * outputs], alone[first + r].data(),
                              outputs * sizeof(float)),
                  0)
            << "row " << r << " of " << rows << " from " << first;
      }
    }
  }
}

TEST_P(LinearTest, ZeroRowGivesZeroAndExtremesStayFinite) {
  const uint32_t inputs = Whole(64), outputs = 32;
  const StoredMatrix matrix = RandomMatrix(GetParam().type, outputs, inputs, 3);
  std::vector<float> x(4 * inputs);
  for (uint32_t k = 0; k < inputs; ++k) {
    x[inputs + k] = 1e-38f;  // subnormal products
    x[2 * inputs + k] = k % 2 == 0 ? 1e30f : -1e30f;
    x[3 * inputs + k] = k == 5 ? 1e20f : 1e-3f;  // one outlier
  }
  const auto out = Multiply(matrix, x, 4);
  for (uint32_t c = 0; c < outputs; ++c) EXPECT_EQ(out[c], 0.0f);
  for (float value : out) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(LinearTest, NanOfOneRowStaysInThatRow) {
  const uint32_t inputs = Whole(96), outputs = 32;
  const StoredMatrix matrix = RandomMatrix(GetParam().type, outputs, inputs, 4);
  auto x = RandomFloats(3 * inputs, 5);
  const auto clean = Multiply(matrix, x, 3);
  x[inputs + 40] = NAN;
  const auto dirty = Multiply(matrix, x, 3);
  for (uint32_t c = 0; c < outputs; ++c) {
    EXPECT_EQ(dirty[c], clean[c]);
    EXPECT_TRUE(std::isnan(dirty[outputs + c])) << "output " << c;
    EXPECT_EQ(dirty[2 * outputs + c], clean[2 * outputs + c]);
  }
}

TEST_P(LinearTest, GroupsOfAllRowsMultiplyLikeGroupsOfSingleRows) {
  const uint32_t inputs = Whole(192), outputs = 32;
  const StoredMatrix matrix = RandomMatrix(GetParam().type, outputs, inputs, 6);
  const size_t stride = inputs + 16;
  auto x = RandomFloats(kTileRows * stride, 7);
  for (uint32_t r = 0; r < kTileRows; ++r) {
    float* row = &x[r * stride];
    row[r] *= 50;                        // an outlier in the first group
    std::fill_n(row + 32, 32, 0.0f);     // nothing in the second
    if (r == 1) row[40] = 3;             // but an outlier alone
    if (r == 2) row[70] = row[71] = 99;  // two large ones: no outlier
    if (r == 3) row[100] = NAN;
    if (r == 4) std::fill_n(row + 64, 32, 1e-37f);
    if (r == 5) row[130] = INFINITY;
  }
  AlignedBytes panel(format().PanelBytes(inputs));
  format().PackPanel(matrix.Panel(0), panel.data());
  const ActivationFormat& activation = format().activation();
  const uint32_t groups = activation.PaddedInputs(inputs) / kGroup;
  ASSERT_EQ(groups * kGroup, inputs);
  for (uint32_t rows = 1; rows <= kTileRows; ++rows) {
    AlignedBytes together(activation.TileBytes(inputs)), apart(activation.TileBytes(inputs));
    activation.PackGroups(x.data(), stride, together.data(), inputs, rows, 0, 1);
    activation.PackGroups(&x[kGroup], stride, together.data(), inputs, rows, 1, groups - 1);
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t g = 0; g < groups; ++g) {
        activation.PackGroup(&x[r * stride + g * kGroup], apart.data(), inputs, rows, r, g);
      }
    }
    AlignedBytes out(sizeof(float) * kTileRows * kPanelOutputs);
    AlignedBytes expected(sizeof(float) * kTileRows * kPanelOutputs);
    format().Multiply(panel.data(), inputs, together.data(), rows, out.floats(), nullptr, 0);
    format().Multiply(panel.data(), inputs, apart.data(), rows, expected.floats(), nullptr, 0);
    for (uint32_t i = 0; i < rows * kPanelOutputs; ++i) {
      if (std::isnan(expected.floats()[i])) {
        EXPECT_TRUE(std::isnan(out.floats()[i]));
      } else {
        ASSERT_EQ(out.floats()[i], expected.floats()[i])
            << "row " << i / kPanelOutputs << " of " << rows << ", output " << i % kPanelOutputs;
      }
    }
  }
}

TEST_P(LinearTest, SizesAreMultiplesOfACacheLine) {
  for (uint32_t inputs : InputCounts()) {
    EXPECT_EQ(format().PanelBytes(inputs) % 64, 0u) << inputs;
    EXPECT_EQ(format().activation().TileBytes(inputs) % 64, 0u) << inputs;
    EXPECT_EQ(format().activation().PaddedInputs(inputs) % kGroup, 0u) << inputs;
    EXPECT_GE(format().activation().PaddedInputs(inputs), inputs);
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Backend* backend : AvailableBackends()) {
    for (WeightType type : kAllWeightTypes) {
      for (Precision precision : {Precision::kExact, Precision::kFast}) {
        cases.push_back({backend, type, precision});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllBackends, LinearTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) {
                           return std::string(test.param.backend->name()) + "_" +
                                  WeightTypeName(test.param.type) +
                                  (test.param.precision == Precision::kExact ? "_exact" : "_fast");
                         });

TEST(RowTiles, CoverEveryRowWithoutSmallLeftovers) {
  for (uint32_t rows = 1; rows < 200; ++rows) {
    const RowTiles tiles(rows);
    uint32_t covered = 0, least = kTileRows, most = 0;
    for (uint32_t t = 0; t < tiles.count(); ++t) {
      EXPECT_EQ(tiles.begin(t), covered);
      covered += tiles.size(t);
      least = std::min(least, tiles.size(t));
      most = std::max(most, tiles.size(t));
    }
    EXPECT_EQ(covered, rows);
    EXPECT_LE(most, kTileRows);
    EXPECT_LE(most - least, 1u);
  }
}

TEST(FindBackend, KnowsAutoAndNamesAndRefusesOthers) {
  EXPECT_EQ(FindBackend("ref")->name(), "ref");
  EXPECT_EQ(FindBackend("generic")->name(), "generic");
  EXPECT_EQ(FindBackend("auto"), AvailableBackends().front());
  EXPECT_EQ(FindBackend("sse9"), nullptr);
  EXPECT_EQ(FindBackend(""), nullptr);
  EXPECT_EQ(Backends().back()->name(), "ref");
}

}  // namespace
}  // namespace baton::kernels
