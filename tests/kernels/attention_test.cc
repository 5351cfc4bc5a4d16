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
  const size_t slice = KvSliceBytes(format.element(), head_dim);
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
  for (uint32_t r = 0; r < rows; ++r) {
    format.PrepareQuery(aligned.floats() + size_t{r} * kv.head_dim, kv.head_dim);
  }
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

class AttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  const AttentionFormat& format() const {
    return GetParam().backend->Attention(GetParam().element);
  }
  const AttentionFormat& oracle() const {
    return FindBackend("ref")->Attention(GetParam().element);
  }
  // Backends may round queries and weights to bf16 over bf16 slices.
  float tolerance() const { return GetParam().element == KvElement::kBf16 ? 0.02f : 1e-5f; }
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

// What is stored stands for the keys and values that were given.
TEST_P(AttentionTest, AgreesWithFloat32SlicesUpToTheirRounding) {
  const AttentionFormat& f32 = FindBackend("ref")->Attention(KvElement::kF32);
  for (uint32_t head_dim : {16u, 48u, 64u, 128u}) {
    const Kv kv = MakeKv(format(), head_dim, 100, 4, 7);
    const Kv reference = MakeKv(f32, head_dim, 100, 4, 7);
    const auto query = RandomFloats(head_dim, 3, 0.3f);
    const std::vector<uint32_t> position = {99};
    const Result actual = Attend(format(), kv, query, position);
    const Result expected = Attend(f32, reference, query, position);
    for (uint32_t d = 0; d < head_dim; ++d) {
      EXPECT_NEAR(actual.out[d] / actual.sum[0], expected.out[d] / expected.sum[0], 0.02)
          << "head size " << head_dim << ", dim " << d;
    }
  }
}

TEST_P(AttentionTest, NanInAKeyOrAValueReachesRowsThatSeeItAndNoOthers) {
  constexpr uint32_t kHeadDim = 32, kDirty = 40;
  for (const bool in_key : {true, false}) {
    Kv kv = MakeKv(format(), kHeadDim, 64, 2, 1);
    auto k = RandomFloats(kHeadDim, 5), v = RandomFloats(kHeadDim, 6);
    (in_key ? k : v)[7] = std::nanf("");
    format().Append(k.data(), v.data(), kHeadDim, kDirty % kBlockTokens,
                    const_cast<std::byte*>(kv.keys[1]), const_cast<std::byte*>(kv.values[1]));
    const auto queries = RandomFloats(2 * kHeadDim, 7);
    const std::vector<uint32_t> positions = {kBlockTokens - 1, 63};
    const Result seen = Attend(format(), kv, queries, positions);
    EXPECT_TRUE(std::isnan(seen.out[kHeadDim + 7])) << (in_key ? "key" : "value");
    // A row that ends in an earlier block, looked at without the dirty one.
    kv.keys.resize(1);
    kv.values.resize(1);
    const Result unseen = Attend(format(), kv, queries, {&positions[0], 1});
    for (float value : unseen.out) EXPECT_TRUE(std::isfinite(value));
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Backend* backend : AvailableBackends()) {
    for (KvElement element : {KvElement::kF32, KvElement::kBf16, KvElement::kInt8}) {
      cases.push_back({backend, element});
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& test) {
  static constexpr const char* kNames[] = {"_f32", "_bf16", "_int8"};
  return std::string(test.param.backend->name()) + kNames[static_cast<size_t>(test.param.element)];
}

INSTANTIATE_TEST_SUITE_P(AllBackends, AttentionTest, ::testing::ValuesIn(AllCases()), CaseName);

}  // namespace
}  // namespace baton::kernels
