// SPDX-License-Identifier: Apache-2.0
// The stored forms of K and V: rotation, 8-bit codes, and from one to another.
#include "kernels/packing/kv_slices.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/packing/hadamard.h"
#include "kernels/packing/int8_rows.h"
#include "kernels/packing/kv_convert.h"
#include "tests/kernels/kernel_inputs.h"

namespace baton::kernels {
namespace {

// By the definition: H[i][j] = (-1)^popcount(i & j) / sqrt(n) within each part.
std::vector<double> ByDefinition(const std::vector<float>& x) {
  const auto size = static_cast<uint32_t>(x.size());
  const uint32_t part = HadamardPart(size);
  std::vector<double> y(size);
  for (uint32_t i = 0; i < size; ++i) {
    for (uint32_t j = 0; j < part; ++j) {
      const double sign = std::popcount((i % part) & j) % 2 == 0 ? 1 : -1;
      y[i] += sign * x[i - i % part + j];
    }
    y[i] /= std::sqrt(part);
  }
  return y;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(Hadamard, PartIsTheLargestPowerOfTwoThatDivides) {
  EXPECT_EQ(HadamardPart(16), 16u);
  EXPECT_EQ(HadamardPart(64), 64u);
  EXPECT_EQ(HadamardPart(80), 16u);
  EXPECT_EQ(HadamardPart(96), 32u);
  EXPECT_EQ(HadamardPart(128), 128u);
}

TEST(Hadamard, IsTheTransformOfItsDefinitionAndKeepsDotProducts) {
  for (uint32_t size : {16u, 48u, 64u, 80u, 128u, 256u}) {
    const auto x = RandomFloats(size, 1), y = RandomFloats(size, 2);
    auto rotated_x = x, rotated_y = y;
    HadamardRow(rotated_x.data(), size);
    HadamardRow(rotated_y.data(), size);
    const auto expected = ByDefinition(x);
    for (uint32_t i = 0; i < size; ++i) EXPECT_NEAR(rotated_x[i], expected[i], 1e-5);
    EXPECT_NEAR(Dot(rotated_x, rotated_y), Dot(x, y), 1e-4);
    HadamardRow(rotated_x.data(), size);
    for (uint32_t i = 0; i < size; ++i) EXPECT_NEAR(rotated_x[i], x[i], 1e-5);
  }
}

TEST(Hadamard, ColumnsHaveTheBitsOfRows) {
  for (uint32_t size : {16u, 48u, 64u, 128u}) {
    auto columns = RandomFloats(size_t{size} * kBlockTokens, 3);
    std::vector<std::vector<float>> rows(kBlockTokens, std::vector<float>(size));
    for (uint32_t t = 0; t < kBlockTokens; ++t) {
      for (uint32_t d = 0; d < size; ++d) rows[t][d] = columns[size_t{d} * kBlockTokens + t];
      HadamardRow(rows[t].data(), size);
    }
    HadamardColumns(columns.data(), size);
    for (uint32_t t = 0; t < kBlockTokens; ++t) {
      for (uint32_t d = 0; d < size; ++d) {
        ASSERT_EQ(columns[size_t{d} * kBlockTokens + t], rows[t][d]) << size;
      }
    }
  }
}

TEST(Int8Rows, ErrorIsAtMostHalfAStepAtEveryMagnitude) {
  for (float magnitude : {1e-25f, 3e-6f, 0.02f, 1.0f, 777.0f, 6e4f, 1e30f}) {
    auto values = RandomFloats(200, 4, magnitude);
    for (float max : values) {
      const Int8Scale scale = ScaleOf(MagnitudeBits(max));
      const float step = Bf16ToFloat(scale.bits);
      for (float part : {-1.0f, -0.77f, -0.5f, 0.0f, 0.003f, 0.25f, 1.0f}) {
        const float value = part * std::abs(max);
        // The largest magnitude may lie a quarter of a step beyond the last code.
        EXPECT_NEAR(CodeOf(value, scale.inverse) * step, value, 0.5001 * step) << max;
      }
    }
  }
}

TEST(Int8Rows, NothingBecomesZeroAndInfinityBecomesNan) {
  EXPECT_EQ(ScaleOf(MagnitudeBits(0)).bits, 0);
  EXPECT_EQ(ScaleOf(MagnitudeBits(-0.0f)).bits, 0);
  EXPECT_EQ(ScaleOf(MagnitudeBits(1e-40f)).bits, 0);
  EXPECT_EQ(CodeOf(1e-40f, ScaleOf(MagnitudeBits(1e-40f)).inverse), 0);
  for (float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    EXPECT_TRUE(std::isnan(Bf16ToFloat(ScaleOf(MagnitudeBits(bad)).bits)));
  }
  // NaN wins over every number, wherever it stands.
  EXPECT_GT(MagnitudeBits(std::nanf("")), MagnitudeBits(INFINITY));
  EXPECT_GT(MagnitudeBits(INFINITY), MagnitudeBits(-3e38f));
}

// Slices of `tokens` appended K and V.
struct Pair {
  AlignedBytes keys, values;
};
Pair Appended(const AttentionFormat& format, uint32_t head_dim, std::span<const float> k,
              std::span<const float> v) {
  const size_t bytes = KvSliceBytes(format.element(), head_dim);
  Pair pair{AlignedBytes(bytes), AlignedBytes(bytes)};
  std::memset(pair.keys.data(), 0, bytes);
  std::memset(pair.values.data(), 0, bytes);
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    format.Append(&k[size_t{t} * head_dim], &v[size_t{t} * head_dim], head_dim, t, pair.keys.data(),
                  pair.values.data());
  }
  return pair;
}

const AttentionFormat& Format(KvElement element) { return FindBackend("ref")->Attention(element); }

TEST(ConvertSlices, FromFloat32GivesWhatAppendingGives) {
  for (uint32_t head_dim : {16u, 48u, 64u, 128u}) {
    auto k = RandomFloats(size_t{kBlockTokens} * head_dim, 5), v = RandomFloats(k.size(), 6);
    std::fill_n(v.begin() + 3 * head_dim, head_dim, 0.0f);
    Pair from = Appended(Format(KvElement::kF32), head_dim, k, v);
    for (KvElement to : {KvElement::kBf16, KvElement::kInt8}) {
      const size_t bytes = KvSliceBytes(to, head_dim);
      Pair expected = Appended(Format(to), head_dim, k, v);
      AlignedBytes keys(bytes), values(bytes);
      ConvertKeys(KvElement::kF32, from.keys.data(), to, head_dim, keys.data());
      ConvertValues(KvElement::kF32, from.values.data(), to, head_dim, values.data());
      EXPECT_EQ(std::memcmp(keys.data(), expected.keys.data(), bytes), 0) << head_dim;
      EXPECT_EQ(std::memcmp(values.data(), expected.values.data(), bytes), 0) << head_dim;
    }
  }
}

TEST(ConvertSlices, EveryPairKeepsKeysAndValuesUpToBothRoundings) {
  constexpr uint32_t kHeadDim = 64;
  const auto k = RandomFloats(kBlockTokens * kHeadDim, 7), v = RandomFloats(k.size(), 8);
  Pair truth = Appended(Format(KvElement::kF32), kHeadDim, k, v);
  const auto* true_keys = reinterpret_cast<const float*>(truth.keys.data());
  for (KvElement from : {KvElement::kF32, KvElement::kBf16, KvElement::kInt8}) {
    Pair source = Appended(Format(from), kHeadDim, k, v);
    for (KvElement to : {KvElement::kF32, KvElement::kBf16, KvElement::kInt8}) {
      AlignedBytes slice(KvSliceBytes(to, kHeadDim)), plain(KvSliceBytes(KvElement::kF32, 64));
      ConvertKeys(from, source.keys.data(), to, kHeadDim, slice.data());
      ConvertKeys(to, slice.data(), KvElement::kF32, kHeadDim, plain.data());
      for (size_t i = 0; i < k.size(); ++i) ASSERT_NEAR(plain.floats()[i], true_keys[i], 0.06);
      ConvertValues(from, source.values.data(), to, kHeadDim, slice.data());
      ConvertValues(to, slice.data(), KvElement::kF32, kHeadDim, plain.data());
      for (size_t i = 0; i < v.size(); ++i) ASSERT_NEAR(plain.floats()[i], v[i], 0.06);
    }
  }
}

TEST(ConvertSlices, SameTypeAndWideningLoseNothing) {
  constexpr uint32_t kHeadDim = 48;
  const auto k = RandomFloats(kBlockTokens * kHeadDim, 9), v = RandomFloats(k.size(), 10);
  const size_t bytes = KvSliceBytes(KvElement::kBf16, kHeadDim);
  Pair source = Appended(Format(KvElement::kBf16), kHeadDim, k, v);
  AlignedBytes wide(2 * bytes), back(bytes);
  ConvertKeys(KvElement::kBf16, source.keys.data(), KvElement::kF32, kHeadDim, wide.data());
  ConvertKeys(KvElement::kF32, wide.data(), KvElement::kBf16, kHeadDim, back.data());
  EXPECT_EQ(std::memcmp(back.data(), source.keys.data(), bytes), 0);
  const size_t int8_bytes = KvSliceBytes(KvElement::kInt8, kHeadDim);
  Pair int8 = Appended(Format(KvElement::kInt8), kHeadDim, k, v);
  ConvertKeys(KvElement::kInt8, int8.keys.data(), KvElement::kInt8, kHeadDim, back.data());
  EXPECT_EQ(std::memcmp(back.data(), int8.keys.data(), int8_bytes), 0);
  ConvertValues(KvElement::kInt8, int8.values.data(), KvElement::kInt8, kHeadDim, back.data());
  EXPECT_EQ(std::memcmp(back.data(), int8.values.data(), int8_bytes), 0);
}

TEST(ConvertSlices, AnyBytesAreConverted) {
  constexpr uint32_t kHeadDim = 64;
  for (KvElement from : {KvElement::kF32, KvElement::kBf16, KvElement::kInt8}) {
    AlignedBytes slice(KvSliceBytes(from, kHeadDim));
    std::memset(slice.data(), 0xff, KvSliceBytes(from, kHeadDim));  // NaN in every type
    for (KvElement to : {KvElement::kF32, KvElement::kBf16, KvElement::kInt8}) {
      AlignedBytes out(KvSliceBytes(to, kHeadDim)), plain(KvSliceBytes(KvElement::kF32, kHeadDim));
      ConvertKeys(from, slice.data(), to, kHeadDim, out.data());
      ConvertKeys(to, out.data(), KvElement::kF32, kHeadDim, plain.data());
      EXPECT_TRUE(std::isnan(plain.floats()[0]));
      ConvertValues(from, slice.data(), to, kHeadDim, out.data());
      ConvertValues(to, out.data(), KvElement::kF32, kHeadDim, plain.data());
      EXPECT_TRUE(std::isnan(plain.floats()[0]));
    }
  }
}

// The reason for the rotation: keys with a few large coordinates, as models
// have them, take a step that drowns the others.
TEST(Int8Slices, RotationKeepsScoresOfKeysWithLargeCoordinates) {
  constexpr uint32_t kHeadDim = 64;
  auto k = RandomFloats(kBlockTokens * kHeadDim, 11);
  const auto v = RandomFloats(k.size(), 12);
  for (uint32_t t = 0; t < kBlockTokens; ++t) k[t * kHeadDim + 5] += 100;
  auto query = RandomFloats(kHeadDim, 13);
  query[5] = 0.01f;
  Pair slices = Appended(Format(KvElement::kInt8), kHeadDim, k, v);
  AlignedBytes columns(KvSliceBytes(KvElement::kF32, kHeadDim));
  ExpandKeys(KvElement::kInt8, slices.keys.data(), kHeadDim, columns.floats());
  auto prepared = query;
  Format(KvElement::kInt8).PrepareQuery(prepared.data(), kHeadDim);
  double rotated_error = 0, plain_error = 0;
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    const std::vector<float> key(k.begin() + t * kHeadDim, k.begin() + (t + 1) * kHeadDim);
    double score = 0, plain = 0;
    const Int8Scale scale = ScaleOf(MagnitudeBits(key[5]));
    for (uint32_t d = 0; d < kHeadDim; ++d) {
      score += static_cast<double>(prepared[d]) * columns.floats()[d * kBlockTokens + t];
      plain +=
          static_cast<double>(query[d]) * CodeOf(key[d], scale.inverse) * Bf16ToFloat(scale.bits);
    }
    rotated_error += std::abs(score - Dot(key, query));
    plain_error += std::abs(plain - Dot(key, query));
  }
  EXPECT_LT(rotated_error, plain_error / 3);
}

}  // namespace
}  // namespace baton::kernels
