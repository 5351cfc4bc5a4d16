// SPDX-License-Identifier: Apache-2.0
// bf16 attention against float64 over the same rounded queries, keys, values.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/kernels/avx512/backend_under_test.h"
#include "tests/kernels/avx512/stored_weights.h"

namespace baton::kernels {
namespace {

using testing::AlignedArray;

double Round(double x) { return testing::Bf16ToDouble(testing::DoubleToBf16(x)); }

// One segment of one KV head, appended token by token.
class Segment {
 public:
  Segment(const AttentionFormat& format, uint32_t head_dim, uint32_t blocks, uint32_t tokens,
          uint32_t seed)
      : head_dim_(head_dim), keys_(tokens * head_dim), values_(tokens * head_dim) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& k : keys_) k = normal(random);
    for (float& v : values_) v = normal(random);
    const size_t slice = size_t{kBlockTokens} * head_dim * 2;
    for (uint32_t b = 0; b < blocks; ++b) {
      for (auto* slices : {&k_slices_, &v_slices_}) slices->emplace_back(slice);
    }
    for (uint32_t b = 0; b < blocks; ++b) {
      k_pointers_.push_back(k_slices_[b].data());
      v_pointers_.push_back(v_slices_[b].data());
    }
    for (uint32_t t = 0; t < tokens; ++t) {
      format.Append(&keys_[t * head_dim], &values_[t * head_dim], head_dim, t % kBlockTokens,
                    k_slices_[t / kBlockTokens].data(), v_slices_[t / kBlockTokens].data());
    }
  }
  double key(uint32_t token, uint32_t d) const { return Round(keys_[token * head_dim_ + d]); }
  double value(uint32_t token, uint32_t d) const { return Round(values_[token * head_dim_ + d]); }
  const std::byte* const* keys() const { return k_pointers_.data(); }
  const std::byte* const* values() const { return v_pointers_.data(); }

 private:
  uint32_t head_dim_;
  std::vector<float> keys_, values_;
  std::vector<AlignedArray<std::byte>> k_slices_, v_slices_;
  std::vector<const std::byte*> k_pointers_, v_pointers_;
};

struct Result {
  std::vector<float> max, sum, out;
};

struct Queries {
  std::vector<float> values;  // [rows, head_dim]
  std::vector<uint32_t> positions;
};

Queries RandomQueries(uint32_t rows, uint32_t head_dim, uint32_t tokens, uint32_t first_token,
                      uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1.4427f / std::sqrt(static_cast<float>(head_dim)));
  Queries q{std::vector<float>(rows * head_dim), std::vector<uint32_t>(rows)};
  for (float& value : q.values) value = 2 * normal(random);
  for (uint32_t& position : q.positions) position = first_token + random() % tokens;
  q.positions[0] = first_token + tokens - 1;
  return q;
}

Result Attend(const AttentionFormat& format, const Segment& segment, const Queries& q,
              uint32_t head_dim, uint32_t first_token, uint32_t blocks) {
  const auto rows = static_cast<uint32_t>(q.positions.size());
  AlignedArray<float> out(size_t{rows} * head_dim);
  Result result{std::vector<float>(rows), std::vector<float>(rows), {}};
  format.Attend({.head_dim = head_dim,
                 .rows = rows,
                 .queries = q.values.data(),
                 .positions = q.positions.data(),
                 .first_token = first_token,
                 .blocks = blocks,
                 .keys = segment.keys(),
                 .values = segment.values(),
                 .max = result.max.data(),
                 .sum = result.sum.data(),
                 .out = out.data()});
  result.out.assign(out.data(), out.data() + out.size());
  return result;
}

class Bf16Attention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::BackendUnderTest() == nullptr) {
      GTEST_SKIP() << "this CPU lacks AVX-512 with VNNI";
    }
    format_ = &testing::BackendUnderTest()->Attention(KvElement::kBf16);
  }

  void CheckRow(const Segment& segment, const Queries& q, uint32_t row, uint32_t head_dim,
                uint32_t first_token, const Result& result) {
    const uint32_t visible = q.positions[row] - first_token + 1;
    std::vector<double> scores(visible);
    double max = kNoScore, magnitude = 0;
    for (uint32_t t = 0; t < visible; ++t) {
      for (uint32_t d = 0; d < head_dim; ++d) {
        const double product = Round(q.values[row * head_dim + d]) * segment.key(t, d);
        scores[t] += product;
        magnitude = std::max(magnitude, std::abs(product));
      }
      max = std::max(max, scores[t]);
    }
    ASSERT_NEAR(result.max[row], max, 1e-5 * (1 + magnitude));
    double sum = 0;
    for (double score : scores) sum += std::exp2(score - max);
    // Weights are rounded to bf16 (relative error 2^-8) in the sum and in V's
    // factors alike.
    ASSERT_NEAR(result.sum[row], sum, 4.2e-3 * sum);
    for (uint32_t d = 0; d < head_dim; ++d) {
      double expected = 0, total = 0;
      for (uint32_t t = 0; t < visible; ++t) {
        const double product = std::exp2(scores[t] - max) * segment.value(t, d);
        expected += product;
        total += std::abs(product);
      }
      ASSERT_NEAR(result.out[row * head_dim + d], expected, 4.2e-3 * total)
          << "row " << row << ", dimension " << d;
    }
  }

  const AttentionFormat* format_ = nullptr;
};

TEST_F(Bf16Attention, AgreesWithFloat64ForEveryRowCountAndHeadSize) {
  for (uint32_t head_dim : {16, 64, 80, 128, 144, 272}) {
    for (uint32_t rows = 1; rows <= kAttentionRows; ++rows) {
      const uint32_t tokens = 1 + (rows * 37 + head_dim) % 256;
      const uint32_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
      const Segment segment(*format_, head_dim, blocks, tokens, rows);
      const Queries q = RandomQueries(rows, head_dim, tokens, 512, head_dim + rows);
      const Result result = Attend(*format_, segment, q, head_dim, 512, blocks);
      for (uint32_t r = 0; r < rows; ++r) {
        CheckRow(segment, q, r, head_dim, 512, result);
        if (HasFatalFailure()) FAIL() << "head_dim " << head_dim << ", rows " << rows;
      }
    }
  }
}

TEST_F(Bf16Attention, RowHasTheSameBitsAloneAndBesideOthersAndWithMoreBlocks) {
  for (uint32_t head_dim : {64, 128}) {
    const Segment segment(*format_, head_dim, 8, 256, 1);
    const Queries q = RandomQueries(kAttentionRows, head_dim, 256, 256, 2);
    const Result all = Attend(*format_, segment, q, head_dim, 256, 8);
    for (uint32_t r = 0; r < kAttentionRows; ++r) {
      const Queries one{{q.values.begin() + r * head_dim, q.values.begin() + (r + 1) * head_dim},
                        {q.positions[r]}};
      const uint32_t needed = (q.positions[r] - 256) / kBlockTokens + 1;
      for (uint32_t blocks : {needed, 8u}) {
        const Result alone = Attend(*format_, segment, one, head_dim, 256, blocks);
        EXPECT_EQ(alone.max[0], all.max[r]);
        EXPECT_EQ(alone.sum[0], all.sum[r]);
        EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), &all.out[r * head_dim]))
            << "row " << r << ", blocks " << blocks;
      }
    }
  }
}

TEST_F(Bf16Attention, SingleVisibleTokenGivesItsValueExactly) {
  const Segment segment(*format_, 64, 1, 32, 3);
  Queries q = RandomQueries(2, 64, 32, 0, 4);
  q.positions = {0, 0};
  const Result result = Attend(*format_, segment, q, 64, 0, 1);
  EXPECT_EQ(result.sum[0], 1);
  for (uint32_t d = 0; d < 64; ++d) EXPECT_EQ(result.out[d], segment.value(0, d));
}

TEST_F(Bf16Attention, RowThatSeesNothingGetsNothing) {
  const Segment segment(*format_, 64, 1, 32, 5);
  Queries q = RandomQueries(3, 64, 32, 256, 6);
  q.positions = {260, 255, 0};
  const Result result = Attend(*format_, segment, q, 64, 256, 1);
  for (uint32_t r : {1, 2}) {
    EXPECT_EQ(result.max[r], kNoScore);
    EXPECT_EQ(result.sum[r], 0);
    for (uint32_t d = 0; d < 64; ++d) EXPECT_EQ(result.out[r * 64 + d], 0);
  }
  q.positions = {0, 1, 2};
  EXPECT_EQ(Attend(*format_, segment, q, 64, 256, 1).out, std::vector<float>(3 * 64));
}

TEST_F(Bf16Attention, NotANumberStaysInItsRow) {
  const Segment segment(*format_, 64, 2, 64, 7);
  Queries q = RandomQueries(4, 64, 64, 0, 8);
  const Result good = Attend(*format_, segment, q, 64, 0, 2);
  q.values[2 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  const Result result = Attend(*format_, segment, q, 64, 0, 2);
  for (uint32_t i = 0; i < 4 * 64; ++i) {
    if (i / 64 == 2) {
      EXPECT_TRUE(std::isnan(result.out[i]));
    } else {
      EXPECT_EQ(result.out[i], good.out[i]);
    }
  }
}

TEST_F(Bf16Attention, DistantScoresVanishAndLargeOnesDoNotOverflow) {
  const Segment segment(*format_, 64, 2, 64, 9);
  Queries q = RandomQueries(2, 64, 64, 0, 10);
  for (float& value : q.values) value *= 1e4f;
  const Result result = Attend(*format_, segment, q, 64, 0, 2);
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_GE(result.sum[r], 1);
    for (uint32_t d = 0; d < 64; ++d) EXPECT_TRUE(std::isfinite(result.out[r * 64 + d]));
  }
}

TEST_F(Bf16Attention, AppendRoundsToNearestEvenIntoTheDocumentedLayout) {
  constexpr uint32_t kDim = 32;
  std::vector<float> k(kDim), v(kDim);
  std::mt19937 random(11);
  for (uint32_t d = 0; d < kDim; ++d) {
    k[d] = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0xbfffffff);
    v[d] = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0xbfffffff);
  }
  k[0] = 1 + 0x1p-8f;  // halfway: to even, down
  k[1] = 1 + 0x3p-8f;  // halfway: to even, up
  k[2] = 1e-40f;       // denormal
  k[3] = -0.0f;
  v[0] = std::numeric_limits<float>::infinity();
  for (uint32_t slot : {0, 1, 30, 31}) {
    AlignedArray<std::byte> k_slice(kDim * 64), v_slice(kDim * 64);
    format_->Append(k.data(), v.data(), kDim, slot, k_slice.data(), v_slice.data());
    const auto* keys = reinterpret_cast<const uint16_t*>(k_slice.data());
    const auto* values = reinterpret_cast<const uint16_t*>(v_slice.data());
    size_t written = 0;
    for (uint32_t d = 0; d < kDim; ++d) {
      EXPECT_EQ(keys[(d / 2 * 32 + slot) * 2 + d % 2], testing::DoubleToBf16(k[d])) << d;
      EXPECT_EQ(values[(slot / 2 * kDim + d) * 2 + slot % 2], testing::DoubleToBf16(v[d])) << d;
      written += testing::DoubleToBf16(v[d]) != 0;
    }
    const size_t nonzero = kDim * 32 - std::count(values, values + kDim * 32, 0);
    EXPECT_EQ(nonzero, written) << "other slots were touched";
  }
}

TEST_F(Bf16Attention, MergedSegmentsEqualOneSoftmaxOverAll) {
  constexpr uint32_t kDim = 80;
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  AlignedArray<float> total(kDim), part(kDim);
  for (uint32_t d = 0; d < kDim; ++d) total[d] = 0;
  float max = kNoScore, sum = 0;
  std::vector<double> expected(kDim);
  double expected_sum = 0;
  const float maxima[] = {3.25f, -7.5f, 12.125f, kNoScore, 12.0f};
  for (float segment_max : maxima) {
    const float segment_sum = segment_max == kNoScore ? 0.0f : 2.5f;
    for (uint32_t d = 0; d < kDim; ++d) part[d] = segment_sum == 0 ? 0 : normal(random);
    const double scale = std::exp2(segment_max - 12.125);
    expected_sum += segment_sum * scale;
    for (uint32_t d = 0; d < kDim; ++d) expected[d] += part[d] * scale;
    testing::BackendUnderTest()->merge_segment(kDim, segment_max, segment_sum, part.data(), &max,
                                               &sum, total.data());
  }
  EXPECT_EQ(max, 12.125f);
  EXPECT_NEAR(sum, expected_sum, 1e-6 * expected_sum);
  for (uint32_t d = 0; d < kDim; ++d) EXPECT_NEAR(total[d], expected[d], 2e-6) << d;
}

}  // namespace
}  // namespace baton::kernels
