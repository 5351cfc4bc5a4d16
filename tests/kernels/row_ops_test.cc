// SPDX-License-Identifier: Apache-2.0
// One suite for every backend's row operations; the oracle is `ref`.
#include "kernels/api/row_ops.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_inputs.h"

namespace baton::kernels {
namespace {

constexpr size_t kWidths[] = {1, 15, 16, 17, 33, 96, 576, 1000};

class RowOpsTest : public ::testing::TestWithParam<const Backend*> {
 protected:
  const Backend& backend() const { return *GetParam(); }
  const Backend& oracle() const { return *FindBackend("ref"); }
};

void ExpectNear(std::span<const float> actual, std::span<const float> expected, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i])))
        << "element " << i << " of " << actual.size();
  }
}

TEST_P(RowOpsTest, RmsNormAgreesAlsoInPlace) {
  for (size_t width : kWidths) {
    for (float scale : {1e-4f, 1.0f, 1e4f}) {
      const auto x = RandomFloats(width, 1, scale), weight = RandomFloats(width, 2);
      std::vector<float> expected(width), apart(width), in_place = x;
      oracle().rms_norm(x, weight, 1e-5f, expected);
      backend().rms_norm(x, weight, 1e-5f, apart);
      backend().rms_norm(in_place, weight, 1e-5f, in_place);
      ExpectNear(apart, expected, 2e-6f);
      EXPECT_EQ(in_place, apart);
    }
  }
}

TEST_P(RowOpsTest, RmsNormOfZerosIsZero) {
  std::vector<float> x(100), weight(100, 1), out(100, 1);
  backend().rms_norm(x, weight, 1e-5f, out);
  EXPECT_EQ(out, x);
}

TEST_P(RowOpsTest, AddTileAddsNothingBesideItsRowsAndColumns) {
  constexpr size_t kStride = 48;
  const auto x = RandomFloats(7 * kStride, 12), y = RandomFloats(6 * size_t{kPanelOutputs}, 13);
  for (uint32_t rows : {1u, 5u, 6u}) {
    for (uint32_t columns : {1u, 15u, 16u, 17u, 31u, 32u}) {
      std::vector<float> sum = x;
      backend().add_tile(sum.data(), kStride, y.data(), rows, columns);
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t r = i / kStride, c = i % kStride;
        const bool added = r < rows && c < columns;
        ASSERT_EQ(sum[i], added ? x[i] + y[r * kPanelOutputs + c] : x[i]) << r << ", " << c;
      }
    }
  }
}

TEST_P(RowOpsTest, SwiGluAgreesAlsoInPlace) {
  for (size_t width : kWidths) {
    const auto gate = RandomFloats(width, 3, 5), up = RandomFloats(width, 4);
    std::vector<float> expected(width), apart(width), in_place = gate;
    oracle().swiglu(gate, up, expected);
    backend().swiglu(gate, up, apart);
    backend().swiglu(in_place, up, in_place);
    ExpectNear(apart, expected, 3e-6f);
    EXPECT_EQ(in_place, apart);
  }
}

TEST_P(RowOpsTest, SwiGluSaturatesWithoutNan) {
  const std::vector<float> gate = {-3e38f, -1e4f, -200, -100, -88,  -50,
                                   0,      50,    100,  200,  1e4f, 3e38f};
  const std::vector<float> up(gate.size(), 1);
  std::vector<float> expected(gate.size()), actual(gate.size());
  oracle().swiglu(gate, up, expected);
  backend().swiglu(gate, up, actual);
  for (size_t i = 0; i < gate.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 2e-5f * std::abs(expected[i]) + 1e-30f) << gate[i];
  }
}

TEST_P(RowOpsTest, SwiGluKeepsNanSoThatItIsNoticed) {
  std::vector<float> gate(20, 1), up(20, 1), out(20);
  gate[3] = NAN;
  up[17] = NAN;
  backend().swiglu(gate, up, out);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i == 3 || i == 17) << i;
}

TEST_P(RowOpsTest, AddIsExact) {
  for (size_t width : kWidths) {
    auto x = RandomFloats(width, 5);
    const auto y = RandomFloats(width, 6), before = x;
    backend().add(x, y);
    for (size_t i = 0; i < width; ++i) ASSERT_EQ(x[i], before[i] + y[i]) << i;
  }
}

TEST_P(RowOpsTest, RopeAgreesInBothStyles) {
  for (size_t pairs : {1, 3, 6, 8, 12, 16, 17, 32, 64}) {
    const auto angles = RandomFloats(pairs, 7, 3);
    std::vector<float> cos(pairs), sin(pairs);
    for (size_t i = 0; i < pairs; ++i) {
      cos[i] = std::cos(angles[i]);
      sin[i] = std::sin(angles[i]);
    }
    const auto x = RandomFloats(2 * pairs, 8);
    for (const auto op : {&Backend::rope_adjacent, &Backend::rope_halves}) {
      auto expected = x, actual = x;
      (oracle().*op)(expected, cos, sin);
      (backend().*op)(actual, cos, sin);
      ExpectNear(actual, expected, 1e-6f);
    }
  }
}

TEST(RopeReference, RotatesTheNamedPairs) {
  std::vector<float> adjacent = {1, 0, 0, 1}, halves = {1, 0, 0, 1};
  const std::vector<float> cos = {0, 0}, sin = {1, 1};  // a quarter turn
  FindBackend("ref")->rope_adjacent(adjacent, cos, sin);
  FindBackend("ref")->rope_halves(halves, cos, sin);
  EXPECT_EQ(adjacent, (std::vector<float>{0, 1, -1, 0}));
  EXPECT_EQ(halves, (std::vector<float>{0, -1, 1, 0}));
}

INSTANTIATE_TEST_SUITE_P(AllBackends, RowOpsTest, ::testing::ValuesIn(AvailableBackends()),
                         [](const auto& test) { return std::string(test.param->name()); });

}  // namespace
}  // namespace baton::kernels
