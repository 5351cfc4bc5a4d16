// SPDX-License-Identifier: Apache-2.0
// One suite for every backend's attention; the oracle is `ref`.
#include "kernels/api/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/kernels/kernel_inputs.h"

namespace baton::kernels {
namespace {

struct Case {
  const Backend* backend;
  KvElement element;
};

// Blocks of one KV head in any order of memory.
struct Kv {
  uint32_t head_dim;
  size_t slice_bytes;
  AlignedBytes memory;
  std::vector<const std::byte*> keys, values;
};

Kv MakeKv(const AttentionFormat& format, uint32_t head_dim, uint32_t tokens, uint32_t blocks,
          unsigned order_seed, unsigned seed = 1) {
  const size_t slice =
      size_t{format.element() == KvElement::kF32 ? 4u : 2u} * kBlockTokens * head_dim;
  Kv kv{head_dim, slice, AlignedBytes(2 * blocks * slice), {}, {}};
  std::vector<uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(order_seed));
  const auto k = RandomFloats(size_t{tokens} * head_dim, seed),
             v = RandomFloats(k.size(), seed + 1);
  for (uint32_t b = 0; b < blocks; ++b) {
    std::byte* key = kv.memory.data() + 2 * order[b] * slice;
    kv.keys.push_back(key);
    kv.values.push_back(key + slice);
    for (uint32_t slot = 0; slot < kBlockTokens && b * kBlockTokens + slot < tokens; ++slot) {
      const size_t at = (size_t{b} * kBlockTokens + slot) * head_dim;
      format.Append(&k[at], &v[at], head_dim, slot, key, key + slice);
    }
  }
  return kv;
}

struct Result {
  std::vector<float> max, sum, out;
};

Result Attend(const AttentionFormat& format, const Kv& kv, std::span<const float> queries,
              std::span<const uint32_t> positions, uint32_t first_token = 0) {
  const auto rows = static_cast<uint32_t>(positions.size());
  AlignedBytes out(sizeof(float) * rows * kv.head_dim);
  AlignedBytes aligned(sizeof(float) * rows * kv.head_dim);
  std::copy_n(queries.data(), size_t{rows} * kv.head_dim, aligned.floats());
  Result result{std::vector<float>(rows), std::vector<float>(rows), {}};
  SegmentTask task;
  task.head_dim = kv.head_dim;
  task.rows = rows;
  task.queries = aligned.floats();
  task.positions = positions.data();
  task.first_token = first_token;
  task.blocks = static_cast<uint32_t>(kv.keys.size());
  task.keys = kv.keys.data();
  task.values = kv.values.data();
  task.max = result.max.data();
  task.sum = result.sum.data();
  task.out = out.floats();
  format.Attend(task);
  result.out.assign(out.floats(), out.floats() + size_t{rows} * kv.head_dim);
  return result;
}

class AttentionTest : public testing::TestWithParam<Case> {
 protected:
  const AttentionFormat& format() const {
    return GetParam().backend->Attention(GetParam().element);
  }
  const AttentionFormat& oracle() const {
    return FindBackend("ref")->Attention(GetParam().element);
  }
  // Backends may round queries and weights to the element type.
  float tolerance() const { return GetParam().element == KvElement::kF32 ? 1e-5f : 0.02f; }
};

TEST_P(AttentionTest, AgreesWithReferenceForEveryRowCountAndHeadSize) {
  for (uint32_t head_dim : {16u, 32u, 48u, 64u, 80u, 128u}) {
    const Kv kv = MakeKv(format(), head_dim, 100, 4, 7);
    const Kv reference = MakeKv(oracle(), head_dim, 100, 4, 7);
    const auto queries = RandomFloats(size_t{kAttentionRows} * head_dim, 3, 0.3f);
    for (uint32_t rows = 1; rows <= kAttentionRows; ++rows) {
      std::vector<uint32_t> positions(rows);
      for (uint32_t r = 0; r < rows; ++r) positions[r] = (r * 37 + 11) % 100;
      const Result actual = Attend(format(), kv, queries, positions);
      const Result expected = Attend(oracle(), reference, queries, positions);
      for (uint32_t r = 0; r < rows; ++r) {
        ASSERT_NEAR(actual.max[r], expected.max[r], tolerance() * (1 + std::abs(expected.max[r])));
        for (uint32_t d = 0; d < head_dim; ++d) {
          const size_t at = size_t{r} * head_dim + d;
          ASSERT_NEAR(actual.out[at] / actual.sum[r], expected.out[at] / expected.sum[r],
                      tolerance())
              << "head size " << head_dim << ", row " << r << " of " << rows << ", dim " << d;
        }
      }
    }
  }
}

TEST_P(AttentionTest, RowHasTheSameBitsAloneAndWithMoreBlocksAndNeighbours) {
  constexpr uint32_t kHeadDim = 48, kTokens = 256;
  const Kv kv = MakeKv(format(), kHeadDim, kTokens, 8, 1);
  const auto queries = RandomFloats(size_t{kAttentionRows} * kHeadDim, 4);
  const std::vector<uint32_t> positions = {0, 1, 15, 16, 31, 32, 33, 100, 127, 128, 254, 255};
  const Result together = Attend(format(), kv, queries, positions);
  for (uint32_t r = 0; r < kAttentionRows; ++r) {
    Kv short_kv = MakeKv(format(), kHeadDim, kTokens, 8, 99);  // another order in memory
    short_kv.keys.resize(positions[r] / kBlockTokens + 1);
    short_kv.values.resize(short_kv.keys.size());
    const Result alone = Attend(format(), short_kv, std::span(queries).subspan(r * kHeadDim),
                                std::span(positions).subspan(r, 1));
    EXPECT_EQ(alone.max[0], together.max[r]) << r;
    EXPECT_EQ(alone.sum[0], together.sum[r]) << r;
    for (uint32_t d = 0; d < kHeadDim; ++d) {
      ASSERT_EQ(alone.out[d], together.out[size_t{r} * kHeadDim + d]) << "row " << r;
    }
  }
}

TEST_P(AttentionTest, RowBeforeTheSegmentSeesNothing) {
  const Kv kv = MakeKv(format(), 16, 64, 2, 1);
  const auto queries = RandomFloats(32, 5);
  const std::vector<uint32_t> positions = {255, 256};
  const Result result = Attend(format(), kv, queries, positions, 256);
  EXPECT_EQ(result.max[0], kNoScore);
  EXPECT_EQ(result.sum[0], 0.0f);
  for (uint32_t d = 0; d < 16; ++d) EXPECT_EQ(result.out[d], 0.0f);
  EXPECT_EQ(result.sum[1], 1.0f);
}

TEST_P(AttentionTest, MergedSegmentsAgreeWithOneSoftmax) {
  constexpr uint32_t kHeadDim = 32;
  const Backend& backend = *GetParam().backend;
  const Kv first = MakeKv(format(), kHeadDim, 256, 8, 1, 10),
           second = MakeKv(format(), kHeadDim, 96, 3, 1, 20);
  const Kv first_ref = MakeKv(oracle(), kHeadDim, 256, 8, 1, 10);
  const Kv second_ref = MakeKv(oracle(), kHeadDim, 96, 3, 1, 20);
  const auto query = RandomFloats(kHeadDim, 6);
  const std::vector<uint32_t> position = {256 + 70};
  const auto merged = [&](const AttentionFormat& format, const Kv& a, const Kv& b,
                          MergeSegmentFn* merge) {
    float max = kNoScore, sum = 0;
    std::vector<float> out(kHeadDim);
    for (const Result& part :
         {Attend(format, a, query, position, 0), Attend(format, b, query, position, 256)}) {
      merge(kHeadDim, part.max[0], part.sum[0], part.out.data(), &max, &sum, out.data());
    }
    for (float& value : out) value /= sum;
    return out;
  };
  const auto actual = merged(format(), first, second, backend.merge_segment);
  const auto expected = merged(oracle(), first_ref, second_ref, FindBackend("ref")->merge_segment);
  for (uint32_t d = 0; d < kHeadDim; ++d) EXPECT_NEAR(actual[d], expected[d], tolerance());
}

TEST_P(AttentionTest, MergeOfAnUnseenSegmentChangesNoBit) {
  MergeSegmentFn* merge = GetParam().backend->merge_segment;
  const auto part = RandomFloats(48, 7);
  const std::vector<float> nothing(48);
  float max = kNoScore, sum = 0;
  std::vector<float> out(48);
  merge(48, 1.25f, 3.5f, part.data(), &max, &sum, out.data());
  merge(48, kNoScore, 0, nothing.data(), &max, &sum, out.data());
  EXPECT_EQ(max, 1.25f);
  EXPECT_EQ(sum, 3.5f);
  EXPECT_EQ(out, part);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const Kv kv = MakeKv(format(), 16, 32, 1, 1);
  auto queries = RandomFloats(16, 8, 1e6f);
  const std::vector<uint32_t> positions = {31};
  const Result result = Attend(format(), kv, queries, positions);
  EXPECT_GE(result.sum[0], 1.0f);
  for (float value : result.out) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(AttentionTest, SlicesAreTheSameBytesInEveryBackendWithTheirLayout) {
  if (format().slice_layout() != oracle().slice_layout()) GTEST_SKIP() << "a layout of its own";
  Kv ours = MakeKv(format(), 48, 90, 3, 1), theirs = MakeKv(oracle(), 48, 90, 3, 1);
  EXPECT_EQ(std::memcmp(ours.memory.data(), theirs.memory.data(), 6 * ours.slice_bytes), 0);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Backend* backend : AvailableBackends()) {
    cases.push_back({backend, KvElement::kF32});
    cases.push_back({backend, KvElement::kBf16});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllBackends, AttentionTest, testing::ValuesIn(AllCases()),
                         [](const auto& test) {
                           return std::string(test.param.backend->name()) +
                                  (test.param.element == KvElement::kF32 ? "_f32" : "_bf16");
                         });

}  // namespace
}  // namespace baton::kernels
