// SPDX-License-Identifier: Apache-2.0
// Embedding and RMSNorm kernels.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "common/base/half_float.h"
#include "kernels/api/backend.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {
namespace {

using kernels::RandomFloats;

TEST(GpuEmbed, RowsAreThoseOfTheTokensInEveryType) {
  constexpr uint32_t kVocabulary = 50;
  for (uint32_t hidden : {32u, 96u, 576u, 4096u}) {
    const auto table = RandomFloats(size_t{kVocabulary} * hidden, 1);
    std::vector<uint16_t> half, brain;
    for (float value : table) {
      half.push_back(FloatToHalf(value));
      brain.push_back(FloatToBf16(value));
    }
    const std::vector<uint32_t> tokens = {7, 0, 49, 7, 12};
    const auto run = [&](TableType type, const void* data) {
      std::vector<float> x(tokens.size() * hidden + 8, -1);
      Embed({type, data, tokens.data(), nullptr, nullptr, x.data(), 5, hidden, kVocabulary},
            nullptr);
      for (size_t i = tokens.size() * hidden; i < x.size(); ++i) EXPECT_EQ(x[i], -1);
      return x;
    };
    const auto wide = run(TableType::kF32, table.data());
    const auto from_half = run(TableType::kF16, half.data());
    const auto from_brain = run(TableType::kBf16, brain.data());
    for (size_t r = 0; r < tokens.size(); ++r) {
      for (uint32_t i = 0; i < hidden; ++i) {
        const size_t at = r * hidden + i, stored = size_t{tokens[r]} * hidden + i;
        ASSERT_EQ(wide[at], table[stored]);
        ASSERT_EQ(from_half[at], HalfToFloat(half[stored]));
        ASSERT_EQ(from_brain[at], Bf16ToFloat(brain[stored]));
      }
    }
  }
}

TEST(GpuEmbed, EveryHalfFloatIsExact) {
  std::vector<uint16_t> table(65536);
  for (uint32_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> tokens(table.size() / 32);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i;
  std::vector<float> x(table.size());
  Embed({TableType::kF16, table.data(), tokens.data(), nullptr, nullptr, x.data(), 2048, 32, 2048},
        nullptr);
  for (uint32_t i = 0; i < table.size(); ++i) {
    const float expected = HalfToFloat(static_cast<uint16_t>(i));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(x[i]));
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(x[i]), std::bit_cast<uint32_t>(expected));
    }
  }
}

// As a step does whose tokens the step before has chosen; one of them is an error.
TEST(GpuEmbed, RowsAreThoseOfChosenTokensWhereTheyAskForThem) {
  constexpr uint32_t kVocabulary = 50, kHidden = 64;
  const auto table = RandomFloats(size_t{kVocabulary} * kHidden, 2);
  const std::vector<uint32_t> tokens = {7, 1, 49, 2, 3}, chosen = {30, kNotFinite, 31, kVocabulary};
  const std::vector<int32_t> sources = {2, -1, 1, 3, 0};
  const std::vector<uint32_t> expected = {31, 1, 0, 0, 30};
  std::vector<float> x(tokens.size() * kHidden);
  Embed({TableType::kF32, table.data(), tokens.data(), sources.data(), chosen.data(), x.data(), 5,
         kHidden, kVocabulary},
        nullptr);
  for (size_t r = 0; r < tokens.size(); ++r) {
    for (uint32_t i = 0; i < kHidden; ++i) {
      ASSERT_EQ(x[r * kHidden + i], table[size_t{expected[r]} * kHidden + i]) << r;
    }
  }
}

struct Normed {
  std::vector<uint16_t> out;
};

std::vector<uint16_t> Norm(std::span<const float> x, std::span<const float> weight, uint32_t rows,
                           const uint32_t* source) {
  const auto hidden = static_cast<uint32_t>(weight.size());
  std::vector<uint16_t> out(ActivationBytes(rows, hidden) / 2, 0x1234);
  RmsNorm({x.data(), weight.data(), source, out.data(), rows, hidden, 1e-5f}, nullptr);
  return out;
}

TEST(GpuNorm, AgreesWithReferenceUpToBf16) {
  for (uint32_t hidden : {32u, 96u, 576u, 1056u, 4096u}) {
    for (float scale : {1e-4f, 1.0f, 1e4f}) {
      for (uint32_t rows : {1u, 7u, 8u, 9u}) {
        const auto x = RandomFloats(size_t{rows} * hidden, 1, scale);
        const auto weight = RandomFloats(hidden, 2);
        const auto out = Norm(x, weight, rows, nullptr);
        for (uint32_t r = 0; r < rows; ++r) {
          std::vector<float> expected(hidden);
          kernels::FindBackend("ref")->rms_norm(std::span(x).subspan(size_t{r} * hidden, hidden),
                                                weight, 1e-5f, expected);
          const auto actual = ActivationRow(out, r, hidden);
          for (uint32_t i = 0; i < hidden; ++i) {
            ASSERT_NEAR(actual[i], expected[i], 0.0040f * std::abs(expected[i]) + 1e-7f);
          }
        }
      }
    }
  }
}

TEST(GpuNorm, TakesTheRowsThatAreNamedAndWritesNoOthers) {
  constexpr uint32_t kHidden = 96;
  const auto x = RandomFloats(20 * size_t{kHidden}, 3), weight = RandomFloats(kHidden, 4);
  const std::vector<uint32_t> source = {19, 3, 3};
  const auto all = Norm(x, weight, 20, nullptr), some = Norm(x, weight, 3, source.data());
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(ActivationRow(some, r, kHidden), ActivationRow(all, source[r], kHidden));
  }
  for (uint32_t i = 0; i < kHidden; ++i) {
    EXPECT_EQ(some[ActivationIndex(3, i, GroupsOf(kHidden))], 0x1234);
  }
}

TEST(GpuNorm, BitsAreTheSameInEverySchedule) {
  const auto x = RandomFloats(5 * 4096, 5), weight = RandomFloats(4096, 6);
  const auto expected = Norm(x, weight, 5, nullptr);
  for (auto schedule : kSchedules) {
    const WithSchedule scope(schedule);
    EXPECT_EQ(Norm(x, weight, 5, nullptr), expected);
  }
}

}  // namespace
}  // namespace baton::gpu
