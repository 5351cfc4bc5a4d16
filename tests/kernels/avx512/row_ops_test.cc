// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/avx512/backend_under_test.h"

namespace baton::kernels {
namespace {

std::vector<float> RandomFloats(size_t count, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

constexpr size_t kWidths[] = {1, 2, 15, 16, 17, 31, 96, 576, 1000, 4096};

class RowOps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::BackendUnderTest() == nullptr) {
      GTEST_SKIP() << "this CPU lacks AVX-512 with VNNI";
    }
  }
  const Backend* const backend_ = testing::BackendUnderTest();
};

TEST_F(RowOps, RmsNormAgreesWithFloat64FromTinyToHugeRows) {
  for (size_t width : kWidths) {
    for (float deviation : {1e-20f, 1.0f, 1e4f, 1e30f}) {
      const auto x = RandomFloats(width, deviation, 1), weight = RandomFloats(width, 1, 2);
      double squares = 0;
      for (float value : x) squares += static_cast<double>(value) * value;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5f);
      std::vector<float> out(width);
      backend_->rms_norm(x, weight, 1e-5f, out);
      for (size_t c = 0; c < width; ++c) {
        const double expected = x[c] * scale * weight[c];
        ASSERT_NEAR(out[c], expected, 3e-7 * std::abs(expected) + 1e-37) << width << ", " << c;
      }
    }
  }
}

TEST_F(RowOps, RmsNormWorksInPlaceAndLeavesWhatFollowsAlone) {
  auto x = RandomFloats(21, 1, 3);
  const auto weight = RandomFloats(20, 1, 4);
  const float after = x[20];
  std::vector<float> apart(20);
  backend_->rms_norm(std::span(x).first(20), weight, 1e-5f, apart);
  backend_->rms_norm(std::span(x).first(20), weight, 1e-5f, std::span(x).first(20));
  EXPECT_TRUE(std::equal(apart.begin(), apart.end(), x.begin()));
  EXPECT_EQ(x[20], after);
}

TEST_F(RowOps, SwiGluAgreesWithFloat64OverTheWholeRange) {
  std::vector<float> gate = RandomFloats(1003, 20, 5);
  for (float value : {0.0f, -0.0f, 88.0f, -88.0f, -87.5f, -100.0f, -103.9f, 1e-30f, 1e-40f}) {
    gate.push_back(value);
  }
  const auto up = RandomFloats(gate.size(), 3, 6);
  std::vector<float> out(gate.size());
  backend_->swiglu(gate, up, out);
  for (size_t c = 0; c < gate.size(); ++c) {
    const double g = gate[c], expected = g / (1 + std::exp(-g)) * up[c];
    // 1e-37: below, float32 has no full precision.
    ASSERT_NEAR(out[c], expected, 5e-7 * std::abs(expected) + 1e-37) << gate[c];
  }
}

TEST_F(RowOps, SwiGluIsFiniteForEveryFiniteGate) {
  const float max = std::numeric_limits<float>::max();
  const std::vector<float> gate = {max, -max, 3e38f, -3e38f, 1e10f, -1e10f, -200, 200};
  const std::vector<float> up(gate.size(), 0.5f);
  std::vector<float> out(gate.size());
  backend_->swiglu(gate, up, out);
  for (size_t c = 0; c < gate.size(); ++c) {
    EXPECT_FLOAT_EQ(out[c], gate[c] > 0 ? gate[c] * 0.5f : 0.0f) << gate[c];
  }
}

TEST_F(RowOps, SwiGluWorksInPlaceOfEitherInput) {
  const auto gate = RandomFloats(37, 1, 7), up = RandomFloats(37, 1, 8);
  std::vector<float> apart(37), in_gate = gate, in_up = up;
  backend_->swiglu(gate, up, apart);
  backend_->swiglu(in_gate, up, in_gate);
  backend_->swiglu(gate, in_up, in_up);
  EXPECT_EQ(in_gate, apart);
  EXPECT_EQ(in_up, apart);
}

TEST_F(RowOps, NotANumberStaysInItsElement) {
  std::vector<float> gate = RandomFloats(20, 1, 9);
  gate[3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> up(20, 1);
  std::vector<float> out(20);
  backend_->swiglu(gate, up, out);
  for (size_t c = 0; c < 20; ++c) EXPECT_EQ(std::isnan(out[c]), c == 3);
}

TEST_F(RowOps, AddAddsEveryElementOnce) {
  for (size_t width : kWidths) {
    auto x = RandomFloats(width, 1, 10);
    const auto y = RandomFloats(width, 1, 11), before = x;
    backend_->add(x, y);
    for (size_t c = 0; c < width; ++c) ASSERT_EQ(x[c], before[c] + y[c]);
  }
}

TEST_F(RowOps, RopeRotatesAdjacentPairsAndHalves) {
  for (size_t angles : {1, 7, 8, 9, 16, 17, 32, 64}) {
    std::vector<float> cos(angles), sin(angles);
    for (size_t i = 0; i < angles; ++i) {
      cos[i] = static_cast<float>(std::cos(0.37 * static_cast<double>(i)));
      sin[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
    }
    for (bool adjacent : {true, false}) {
      // Values beyond the rotated ones must stay.
      auto x = RandomFloats(2 * angles + 3, 1, 12);
      const auto before = x;
      (adjacent ? backend_->rope_adjacent : backend_->rope_halves)(x, cos, sin);
      for (size_t i = 0; i < angles; ++i) {
        const size_t a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + angles;
        const double x0 = before[a], x1 = before[b];
        ASSERT_NEAR(x[a], x0 * cos[i] - x1 * sin[i], 1e-6) << angles << ", " << i;
        ASSERT_NEAR(x[b], x1 * cos[i] + x0 * sin[i], 1e-6) << angles << ", " << i;
      }
      for (size_t c = 2 * angles; c < x.size(); ++c) ASSERT_EQ(x[c], before[c]);
    }
  }
}

}  // namespace
}  // namespace baton::kernels
