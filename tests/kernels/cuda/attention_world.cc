// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda/attention_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "common/base/half_float.h"

namespace baton::gpu {

World::World(const Shape& shape, std::vector<uint32_t> tokens, Sight sight)
    : shape_(shape), tokens_(std::move(tokens)), sight_(sight) {
  for (uint32_t count : tokens_) {
    stride_ = std::max(stride_, (count + kBlockTokens - 1) / kBlockTokens);
  }
  const uint32_t used = stride_ * static_cast<uint32_t>(tokens_.size());
  std::vector<uint32_t> order(used + 3);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  blocks_.assign(order.begin(), order.begin() + used);
  const size_t layer = 2 * shape.slice_bytes() * shape.kv_heads;
  pool_memory_.assign((used + 3) * 3 * layer, std::byte{0xff});
  pool_ = {shape.element, pool_memory_.data(), 3 * layer,
           layer,         shape.kv_heads,      static_cast<uint32_t>(shape.slice_bytes()),
           shape.head_dim};
  for (uint32_t s = 0; s < tokens_.size(); ++s) FillSequence(s);
}

std::vector<uint32_t> World::Tables(const std::vector<PromptSlice>& slices) const {
  std::vector<uint32_t> tables(slices.size() * stride_);
  for (size_t s = 0; s < slices.size(); ++s) {
    const auto [first, count] = slices[s];
    if (count == 0) continue;
    const uint32_t last = (first + count - 1) / kBlockTokens;
    uint32_t next = last;
    for (uint32_t block = last + 1; block-- > 0;) {
      uint32_t& entry = tables[s * stride_ + block];
      bool seen = false;
      for (uint32_t t = 0; t < count; ++t) seen = seen || sight_.Sees(first + t, block);
      if (seen) next = block;
      entry = seen ? blocks_[s * stride_ + block] | (sight_.Keeps(block) ? kKeptBlock : 0)
                   : kUnseenBlock | next;
    }
  }
  return tables;
}

std::byte* World::Slice(uint32_t sequence, uint32_t block, uint32_t head, bool value) {
  return pool_memory_.data() + blocks_[sequence * stride_ + block] * pool_.block_bytes +
         pool_.layer_offset + ((value ? shape_.kv_heads : 0) + head) * size_t{pool_.slice_bytes};
}

std::vector<float> World::Reference(uint32_t sequence, uint32_t kv_head, uint32_t position,
                                    std::span<const float> query) {
  const kernels::Backend& ref = *kernels::FindBackend("ref");
  float max = kernels::kNoScore, sum = 0;
  std::vector<float> out(shape_.head_dim);
  for (uint32_t first = 0; first <= position; first += kSegmentTokens) {
    std::vector<const std::byte*> keys, values;
    for (uint32_t b = first / kBlockTokens; b < (first + kSegmentTokens) / kBlockTokens; ++b) {
      if (!sight_.Sees(position, b)) continue;
      keys.push_back(Slice(sequence, b, kv_head, false));
      values.push_back(Slice(sequence, b, kv_head, true));
    }
    if (keys.empty()) continue;
    // As the kernel counts: of the position's own block, which comes last, it sees a part.
    const bool own = first + kSegmentTokens > position;
    const uint32_t counted =
        own ? (position / kBlockTokens + 1 - static_cast<uint32_t>(keys.size())) * kBlockTokens
            : first;
    float segment_max = 0, segment_sum = 0;
    std::vector<float> segment_out(shape_.head_dim);
    shape_.format().Attend({shape_.head_dim, 1, query.data(), &position, counted,
                            static_cast<uint32_t>(keys.size()), keys.data(), values.data(), nullptr,
                            &segment_max, &segment_sum, segment_out.data()});
    ref.merge_segment(shape_.head_dim, segment_max, segment_sum, segment_out.data(), &max, &sum,
                      out.data());
  }
  for (float& value : out) value /= sum;
  return out;
}

void World::FillSequence(uint32_t s) {
  const uint32_t dim = shape_.head_dim;
  const auto k = kernels::RandomFloats(size_t{tokens_[s]} * shape_.kv_heads * dim, 10 + s, 2);
  const auto v = kernels::RandomFloats(k.size(), 50 + s);
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

Queries::Queries(const Shape& shape, uint32_t row_count)
    : values(kernels::RandomFloats(size_t{row_count} * shape.heads() * shape.head_dim, 3, 0.4f)),
      rows(row_count) {
  for (float& value : values) {
    stored.push_back(FloatToBf16(value));
    value = Bf16ToFloat(stored.back());
  }
}

std::span<const float> Queries::Of(const Shape& shape, uint32_t row, uint32_t head) const {
  const size_t packed =
      (size_t{head / shape.group} * rows + row) * shape.group + head % shape.group;
  return std::span(values).subspan(packed * shape.head_dim, shape.head_dim);
}

// REQUIRES: one KV head.
Queries Queries::Part(const Shape& shape, uint32_t first, uint32_t count) const {
  Queries part(shape, count);
  const size_t row = size_t{shape.group} * shape.head_dim;
  std::copy_n(stored.begin() + static_cast<std::ptrdiff_t>(first * row), count * row,
              part.stored.begin());
  return part;
}

std::vector<uint16_t> Decode(const Shape& shape, const World& world, const Queries& queries,
                             const std::vector<int32_t>& positions) {
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
  std::vector<PromptSlice> slices;
  for (const int32_t position : positions) {
    slices.push_back({static_cast<uint32_t>(std::max(position, 0)), position < 0 ? 0u : 1u});
  }
  const std::vector<uint32_t> tables = world.Tables(slices);
  DecodeAttention({world.pool(), queries.stored.data(), rows.data(), positions.data(),
                   tables.data(), out.data(), sums.data(), context.data(), sequences, queries.rows,
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

void ExpectDecode(const Shape& shape, const std::vector<int32_t>& positions, Sight sight) {
  std::vector<uint32_t> tokens;
  for (int32_t position : positions) tokens.push_back(static_cast<uint32_t>(position + 1));
  World world(shape, tokens, sight);
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

std::vector<uint16_t> Prefill(const Shape& shape, const World& world, const Queries& queries,
                              const std::vector<PromptSlice>& slices) {
  std::vector<PrefillItem> items;
  uint32_t row = 0, table = 0;
  for (const PromptSlice& slice : slices) {
    const uint32_t packed = slice.tokens * shape.group;
    for (uint32_t first = 0; first < packed; first += kPrefillRows) {
      items.push_back({row, first, std::min(kPrefillRows, packed - first), slice.first_position,
                       table, world.sight().before});
    }
    row += slice.tokens;
    ++table;
  }
  std::vector<uint16_t> context(ActivationBytes(queries.rows, shape.heads() * shape.head_dim) / 2,
                                0x7fff);
  const std::vector<uint32_t> tables = world.Tables(slices);
  PrefillAttention(
      {world.pool(), queries.stored.data(), items.data(), tables.data(), context.data(),
       static_cast<uint32_t>(items.size()), queries.rows, shape.heads(), world.stride()},
      nullptr);
  return context;
}

void ExpectPrefill(const Shape& shape, const std::vector<PromptSlice>& slices, Sight sight) {
  std::vector<uint32_t> tokens;
  uint32_t rows = 0;
  for (const PromptSlice& slice : slices) {
    tokens.push_back(slice.first_position + slice.tokens);
    rows += slice.tokens;
  }
  World world(shape, tokens, sight);
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

}  // namespace baton::gpu
