// SPDX-License-Identifier: Apache-2.0
// Paged KV, queries and runs of the attention kernels for their suites.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/api/backend.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {

struct Shape {
  uint32_t head_dim, kv_heads, group;
  KvElement element;

  uint32_t heads() const { return kv_heads * group; }
  const kernels::AttentionFormat& format() const {
    return kernels::FindBackend("ref")->Attention(
        element == KvElement::kInt8 ? kernels::KvElement::kInt8 : kernels::KvElement::kBf16);
  }
  size_t slice_bytes() const { return kernels::KvSliceBytes(format().element(), head_dim); }
};

// What positions see, by whole blocks: a window with sinks and a stride.
struct Sight {
  uint32_t before = kAllBefore;    // blocks before a position's own
  uint32_t sinks = 0, stride = 0;  // in blocks

  bool Keeps(uint32_t block) const {
    return before != kAllBefore && (block < sinks || (stride > 0 && block % stride == stride - 1));
  }
  bool Sees(uint32_t position, uint32_t block) const {
    const uint32_t own = position / kBlockTokens;
    return block <= own && (own - block <= before || Keeps(block));
  }
};

// Positions of a sequence that a step computes; none: a padded one.
struct PromptSlice {
  uint32_t first_position, tokens;
};

// Sequences of given lengths in a pool whose other blocks are NaN. The layer of
// interest is the second of three.
class World {
 public:
  World(const Shape& shape, std::vector<uint32_t> tokens, Sight sight = {});

  const KvPool& pool() const { return pool_; }
  const Sight& sight() const { return sight_; }
  uint32_t stride() const { return stride_; }
  // Of a step that computes a slice of each sequence.
  std::vector<uint32_t> Tables(const std::vector<PromptSlice>& slices) const;
  // Context of a prepared query at a position: segments merged by `ref`.
  std::vector<float> Reference(uint32_t sequence, uint32_t kv_head, uint32_t position,
                               std::span<const float> query);

 private:
  std::byte* Slice(uint32_t sequence, uint32_t block, uint32_t head, bool value);
  void FillSequence(uint32_t s);

  const Shape shape_;
  const std::vector<uint32_t> tokens_;
  const Sight sight_;
  uint32_t stride_ = 1;
  std::vector<uint32_t> blocks_;  // [sequence, stride]
  std::vector<std::byte> pool_memory_;
  KvPool pool_;
};

// Queries of a step: [kv heads][rows * group][head_dim], as bf16 and as float32.
struct Queries {
  std::vector<float> values;
  std::vector<uint16_t> stored;
  uint32_t rows;

  Queries(const Shape& shape, uint32_t row_count);
  std::span<const float> Of(const Shape& shape, uint32_t row, uint32_t head) const;
  // Those of rows [first, first + count).
  Queries Part(const Shape& shape, uint32_t first, uint32_t count) const;
};

// The step's context: a position of each sequence (of sequence s as row s + 1, in a
// ring), or a slice of each.
std::vector<uint16_t> Decode(const Shape& shape, const World& world, const Queries& queries,
                             const std::vector<int32_t>& positions);
std::vector<uint16_t> Prefill(const Shape& shape, const World& world, const Queries& queries,
                              const std::vector<PromptSlice>& slices);

// Runs them on worlds of their own and compares with the reference.
void ExpectDecode(const Shape& shape, const std::vector<int32_t>& positions, Sight sight = {});
void ExpectPrefill(const Shape& shape, const std::vector<PromptSlice>& slices, Sight sight = {});
void ExpectNear(std::span<const float> actual, std::span<const float> expected,
                const std::string& what);

}  // namespace baton::gpu
