// SPDX-License-Identifier: Apache-2.0
// Decode and prefill attention over paged blocks, against `ref` segment by
// segment, and bit for bit against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "common/base/half_float.h"
#include "kernels/api/backend.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {
namespace {

using kernels::AttentionFormat;
using kernels::RandomFloats;

struct Shape {
  uint32_t head_dim, kv_heads, group;
  KvElement element;

  uint32_t heads() const { return kv_heads * group; }
  const AttentionFormat& format() const {
    return kernels::FindBackend("ref")->Attention(
        element == KvElement::kInt8 ? kernels::KvElement::kInt8 : kernels::KvElement::kBf16);
  }
  size_t slice_bytes() const { return kernels::KvSliceBytes(format().element(), head_dim); }
};

// Sequences of given lengths in a pool whose other blocks are NaN. The layer of
// interest is the second of three.
class World {
 public:
  World(const Shape& shape, std::vector<uint32_t> tokens) : shape_(shape), tokens_(tokens) {
    for (uint32_t count : tokens_) {
      stride_ = std::max(stride_, (count + kBlockTokens - 1) / kBlockTokens);
    }
    const uint32_t used = stride_ * static_cast<uint32_t>(tokens_.size());
    std::vector<uint32_t> order(used + 3);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    tables_.assign(order.begin(), order.begin() + used);
    const size_t layer = 2 * shape.slice_bytes() * shape.kv_heads;
    pool_memory_.assign((used + 3) * 3 * layer, std::byte{0xff});
    pool_ = {shape.element, pool_memory_.data(), 3 * layer,
             layer,         shape.kv_heads,      static_cast<uint32_t>(shape.slice_bytes()),
             shape.head_dim};
    for (uint32_t s = 0; s < tokens_.size(); ++s) FillSequence(s);
  }

  const KvPool& pool() const { return pool_; }
  const uint32_t* tables() const { return tables_.data(); }
  uint32_t stride() const { return stride_; }

  std::byte* Slice(uint32_t sequence, uint32_t block, uint32_t head, bool value) {
    return pool_memory_.data() + tables_[sequence * stride_ + block] * pool_.block_bytes +
           pool_.layer_offset + ((value ? shape_.kv_heads : 0) + head) * size_t{pool_.slice_bytes};
  }

  // Context of a prepared query at a position: segments merged by `ref`.
  std::vector<float> Reference(uint32_t sequence, uint32_t kv_head, uint32_t position,
                               std::span<const float> query) {
    const kernels::Backend& ref = *kernels::FindBackend("ref");
    float max = kernels::kNoScore, sum = 0;
    std::vector<float> out(shape_.head_dim);
    for (uint32_t first = 0; first <= position; first += kSegmentTokens) {
      std::vector<const std::byte*> keys, values;
      for (uint32_t b = first / kBlockTokens;
           b <= position / kBlockTokens && keys.size() < kSegmentTokens / kBlockTokens; ++b) {
        keys.push_back(Slice(sequence, b, kv_head, false));
        values.push_back(Slice(sequence, b, kv_head, true));
      }
      float segment_max = 0, segment_sum = 0;
      std::vector<float> segment_out(shape_.head_dim);
      shape_.format().Attend({shape_.head_dim, 1, query.data(), &position, first,
                              static_cast<uint32_t>(keys.size()), keys.data(), values.data(),
                              &segment_max, &segment_sum, segment_out.data()});
      ref.merge_segment(shape_.head_dim, segment_max, segment_sum, segment_out.data(), &max, &sum,
                        out.data());
    }
    for (float& value : out) value /= sum;
    return out;
  }

 private:
  void FillSequence(uint32_t s) {
    const uint32_t dim = shape_.head_dim;
    const auto k = RandomFloats(size_t{tokens_[s]} * shape_.kv_heads * dim, 10 + s, 2);
    const auto v = RandomFloats(k.size(), 50 + s);
    for (uint32_t t = 0; t < tokens_[s]; ++t) {
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        std::byte *key = Slice(s, t / kBlockTokens, h, false),
                  *value = Slice(s, t / kBlockTokens, h, true);
        if (t % kBlockTokens == 0) {
          std::memset(key, 0, pool_.slice_bytes);
          std::memset(value, 0, pool_.slice_bytes);
        }
        const size_t at = (size_t{t} * shape_.kv_heads + h) * dim;
        shape_.format().Append(&k[at], &v[at], dim, t % kBlockTokens, key, value);
      }
    }
  }

  const Shape shape_;
  const std::vector<uint32_t> tokens_;
  uint32_t stride_ = 1;
  std::vector<uint32_t> tables_;
  std::vector<std::byte> pool_memory_;
  KvPool pool_;
};

// Queries of a step: [kv heads][rows * group][head_dim], as bf16 and as float32.
struct Queries {
  std::vector<float> values;
  std::vector<uint16_t> stored;
  uint32_t rows;

  Queries(const Shape& shape, uint32_t row_count)
      : values(RandomFloats(size_t{row_count} * shape.heads() * shape.head_dim, 3, 0.4f)),
        rows(row_count) {
    for (float& value : values) {
      stored.push_back(FloatToBf16(value));
      value = Bf16ToFloat(stored.back());
    }
  }
  std::span<const float> Of(const Shape& shape, uint32_t row, uint32_t head) const {
    const size_t packed =
        (size_t{head / shape.group} * rows + row) * shape.group + head % shape.group;
    return std::span(values).subspan(packed * shape.head_dim, shape.head_dim);
  }
};

std::vector<uint16_t> Decode(const Shape& shape, const World& world, const Queries& queries,
                             std::vector<int32_t> positions) {
  const auto sequences = static_cast<uint32_t>(positions.size());
  std::vector<uint32_t> rows(sequences);
  // Rows of the step need not be in the order of the sequences.
  for (uint32_t s = 0; s < sequences; ++s) rows[s] = (s + 1) % sequences;
  const int32_t most = *std::max_element(positions.begin(), positions.end());
  const uint32_t segments = static_cast<uint32_t>(most) / kSegmentTokens + 1;
  std::vector<float> out(size_t{sequences} * shape.heads() * segments * shape.head_dim, NAN);
  std::vector<float> sums(size_t{sequences} * shape.heads() * segments * 2, NAN);
  std::vector<uint16_t> context(ActivationBytes(queries.rows, shape.heads() * shape.head_dim) / 2,
                                0x7fff);
  DecodeAttention({world.pool(), queries.stored.data(), rows.data(), positions.data(),
                   world.tables(), out.data(), sums.data(), context.data(), sequences, queries.rows,
                   shape.heads(), world.stride(), segments},
                  nullptr);
  return context;
}

void ExpectNear(std::span<const float> actual, std::span<const float> expected,
                const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 0.006f * (1 + std::abs(expected[i])))
        << what << ", dim " << i;
  }
}

void ExpectDecode(const Shape& shape, const std::vector<int32_t>& positions) {
  std::vector<uint32_t> tokens;
  for (int32_t position : positions) tokens.push_back(static_cast<uint32_t>(position + 1));
  World world(shape, tokens);
  const auto sequences = static_cast<uint32_t>(positions.size());
  const Queries queries(shape, sequences);
  const auto context = Decode(shape, world, queries, positions);
  for (uint32_t s = 0; s < sequences; ++s) {
    const uint32_t row = (s + 1) % sequences;
    const auto actual = ActivationRow(context, row, shape.heads() * shape.head_dim);
    for (uint32_t h = 0; h < shape.heads(); ++h) {
      const auto head = std::span(actual).subspan(size_t{h} * shape.head_dim, shape.head_dim);
      if (positions[s] < 0) {  // padded: left alone
        EXPECT_TRUE(std::isnan(head[0]));
        continue;
      }
      ExpectNear(head,
                 world.Reference(s, h / shape.group, static_cast<uint32_t>(positions[s]),
                                 queries.Of(shape, row, h)),
                 "position " + std::to_string(positions[s]) + ", head " + std::to_string(h) +
                     ", head size " + std::to_string(shape.head_dim));
    }
  }
}

struct PromptSlice {
  uint32_t first_position, tokens;
};

std::vector<uint16_t> Prefill(const Shape& shape, const World& world, const Queries& queries,
                              const std::vector<PromptSlice>& slices) {
  std::vector<PrefillItem> items;
  uint32_t row = 0, table = 0;
  for (const PromptSlice& slice : slices) {
    const uint32_t packed = slice.tokens * shape.group;
    for (uint32_t first = 0; first < packed; first += kPrefillRows) {
      items.push_back(
          {row, first, std::min(kPrefillRows, packed - first), slice.first_position, table});
    }
    row += slice.tokens;
    ++table;
  }
  std::vector<uint16_t> context(ActivationBytes(queries.rows, shape.heads() * shape.head_dim) / 2,
                                0x7fff);
  PrefillAttention(
      {world.pool(), queries.stored.data(), items.data(), world.tables(), context.data(),
       static_cast<uint32_t>(items.size()), queries.rows, shape.heads(), world.stride()},
      nullptr);
  return context;
}

void ExpectPrefill(const Shape& shape, const std::vector<PromptSlice>& slices) {
  std::vector<uint32_t> tokens;
  uint32_t rows = 0;
  for (const PromptSlice& slice : slices) {
    tokens.push_back(slice.first_position + slice.tokens);
    rows += slice.tokens;
  }
  World world(shape, tokens);
  const Queries queries(shape, rows);
  const auto context = Prefill(shape, world, queries, slices);
  uint32_t row = 0;
  for (uint32_t s = 0; s < slices.size(); ++s) {
    for (uint32_t t = 0; t < slices[s].tokens; ++t, ++row) {
      const uint32_t position = slices[s].first_position + t;
      const auto actual = ActivationRow(context, row, shape.heads() * shape.head_dim);
      for (uint32_t h = 0; h < shape.heads(); ++h) {
        ExpectNear(std::span(actual).subspan(size_t{h} * shape.head_dim, shape.head_dim),
                   world.Reference(s, h / shape.group, position, queries.Of(shape, row, h)),
                   "position " + std::to_string(position) + ", head " + std::to_string(h) +
                       ", head size " + std::to_string(shape.head_dim));
      }
    }
  }
}

class GpuAttentionTest : public ::testing::TestWithParam<KvElement> {};

TEST_P(GpuAttentionTest, DecodeAgreesAtBordersOfBlocksAndSegments) {
  ExpectDecode({64, 2, 3, GetParam()},
               {0, 1, 30, 31, 32, 33, 63, 64, 255, 256, 257, 287, 288, 511, 512, 700});
}

TEST_P(GpuAttentionTest, DecodeAgreesForEveryGroupAndHeadSize) {
  for (uint32_t head_dim : {16u, 64u, 128u}) {
    for (uint32_t group : {1u, 2u, 3u, 8u, 15u, 16u, 20u}) {
      if (BATON_SANITIZED && group != 3 && group != 20) continue;  // sanitizers are slow
      ExpectDecode({head_dim, 2, group, GetParam()}, {17, 260});
    }
  }
}

TEST_P(GpuAttentionTest, DecodeLeavesPaddedSequencesAlone) {
  ExpectDecode({128, 1, 16, GetParam()}, {40, -1, 0, -1});
}

TEST_P(GpuAttentionTest, PrefillAgreesAtBordersOfBlocksAndSegments) {
  ExpectPrefill({64, 2, 2, GetParam()}, {{0, 1}, {0, 33}, {31, 3}, {250, 12}, {510, 5}});
}

TEST_P(GpuAttentionTest, PrefillAgreesForEveryGroupAndHeadSize) {
  for (uint32_t head_dim : {16u, 64u, 128u}) {
    for (uint32_t group : {1u, 3u, 8u, 16u}) {
      if (BATON_SANITIZED && group != 3) continue;
      ExpectPrefill({head_dim, 2, group, GetParam()}, {{0, 9}, {254, 6}});
    }
  }
}

// What the engine relies on: a token's context has the same bits whether it was
// decoded, or computed in any chunk of a prompt, whatever is beside it.
TEST_P(GpuAttentionTest, DecodeAndPrefillOfAnyChunkHaveTheSameBits) {
  const Shape shape{64, 1, 3, GetParam()};
  constexpr uint32_t kTokens = 300;
  World world(shape, {kTokens});
  const Queries all(shape, kTokens);
  const auto whole = Prefill(shape, world, all, {{0, kTokens}});
  const uint32_t inputs = shape.heads() * shape.head_dim;
  const auto part_of = [&](uint32_t first, uint32_t count) {
    Queries part(shape, count);
    const size_t row = size_t{shape.group} * shape.head_dim;
    std::copy_n(all.stored.begin() + static_cast<std::ptrdiff_t>(first * row), count * row,
                part.stored.begin());
    return part;
  };
  for (const PromptSlice& slice : {PromptSlice{0, 7}, PromptSlice{7, 30}, PromptSlice{250, 50}}) {
    const auto chunk = Prefill(shape, world, part_of(slice.first_position, slice.tokens), {slice});
    for (uint32_t t = 0; t < slice.tokens; ++t) {
      EXPECT_EQ(ActivationRow(chunk, t, inputs),
                ActivationRow(whole, slice.first_position + t, inputs));
    }
  }
  for (uint32_t position : {0u, 31u, 32u, 200u, 255u, 256u, 299u}) {
    const auto one = Decode(shape, world, part_of(position, 1), {static_cast<int32_t>(position)});
    EXPECT_EQ(ActivationRow(one, 0, inputs), ActivationRow(whole, position, inputs)) << position;
  }
}

TEST_P(GpuAttentionTest, BitsAreTheSameInEverySchedule) {
  const Shape shape{128, 1, 16, GetParam()};
  World world(shape, {270, 40});
  const Queries queries(shape, 2), prompt(shape, 10);
  const auto decoded = Decode(shape, world, queries, {269, 39});
  const auto prefilled = Prefill(shape, world, prompt, {{260, 10}});
  for (auto schedule : kSchedules) {
    const WithSchedule scope(schedule);
    EXPECT_EQ(Decode(shape, world, queries, {269, 39}), decoded);
    EXPECT_EQ(Prefill(shape, world, prompt, {{260, 10}}), prefilled);
  }
}

// Large scores neither overflow nor lose the one token that counts.
TEST_P(GpuAttentionTest, OneTokenCanHaveAllTheWeight) {
  const Shape shape{64, 1, 1, GetParam()};
  World world(shape, {300});
  Queries queries(shape, 1);
  for (size_t i = 0; i < queries.values.size(); ++i) {
    queries.values[i] = Bf16ToFloat(FloatToBf16(queries.values[i] * 500));
    queries.stored[i] = FloatToBf16(queries.values[i]);
  }
  const auto context = Decode(shape, world, queries, {299});
  ExpectNear(ActivationRow(context, 0, 64), world.Reference(0, 0, 299, queries.values), "all");
}

INSTANTIATE_TEST_SUITE_P(Elements, GpuAttentionTest,
                         ::testing::Values(KvElement::kBf16, KvElement::kInt8),
                         [](const auto& test) {
                           return test.param == KvElement::kInt8 ? "Int8" : "Bf16";
                         });

}  // namespace
}  // namespace baton::gpu
