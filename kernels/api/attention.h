// SPDX-License-Identifier: Apache-2.0
// Attention over paged KV blocks, one 256-token segment at a time
// (Dao et al., 2022, "FlashAttention"; segments at absolute positions, merged
// in order, as in split-KV decoding).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton::kernels {

inline constexpr uint32_t kBlockTokens = 32;     // equals kv::kBlockTokens
inline constexpr uint32_t kSegmentTokens = 256;  // 8 blocks
inline constexpr uint32_t kAttentionRows = 12;   // rows of one call

// How K and V are stored. kInt8: 8-bit codes with one bf16 scale per (token, KV
// head), K and V apart; keys are stored rotated (packing/hadamard.h).
enum class KvElement : uint8_t { kF32, kBf16, kInt8 };

// Bytes of one head's K or V of a block. A multiple of 64, as head_dim is one
// of 16.
constexpr size_t KvSliceBytes(KvElement element, uint32_t head_dim) {
  switch (element) {
    case KvElement::kF32:
      return size_t{kBlockTokens} * head_dim * sizeof(float);
    case KvElement::kBf16:
      return size_t{kBlockTokens} * head_dim * sizeof(uint16_t);
    case KvElement::kInt8:
      return size_t{kBlockTokens} * (head_dim + sizeof(uint16_t));
  }
  return 0;
}

// Query rows against one segment of one KV head. A row is one query head of
// one position; rows of one call belong to one sequence and KV head.
struct SegmentTask {
  uint32_t head_dim = 0;                     // stored width, a multiple of 16
  uint32_t rows = 0;                         // <= kAttentionRows
  const float* queries = nullptr;            // [rows, head_dim]: times log2(e) / sqrt(d), prepared
  const uint32_t* positions = nullptr;       // [rows]: a row sees tokens <= its position
  uint32_t first_token = 0;                  // absolute position of the segment's first token
  uint32_t blocks = 0;                       // blocks to look at, 1 to 8
  const std::byte* const* keys = nullptr;    // [blocks] K slices of the KV head
  const std::byte* const* values = nullptr;  // [blocks] V slices
  // K slice that the next task begins with, or null: the kernel may bring it in.
  const std::byte* next_keys = nullptr;
  // Results: max of scores, sum of 2^(score - max), and the sum of
  // 2^(score - max) * V, not divided. A row that sees no token of the segment
  // gets max = kNoScore, sum = 0, out = 0.
  float* max = nullptr;  // [rows]
  float* sum = nullptr;  // [rows]
  float* out = nullptr;  // [rows, head_dim], 64-byte aligned
};
inline constexpr float kNoScore = -1e30f;

// The K slice that is needed behind that of `block`; without any, that one again.
inline const std::byte* KeysAfter(const SegmentTask& task, uint32_t block) {
  if (block + 1 < task.blocks) return task.keys[block + 1];
  return task.next_keys != nullptr ? task.next_keys : task.keys[block];
}

// A KV slice layout with its kernel. Stateless and thread-safe.
//
// A row's results have the same bits whatever rows stand beside it and
// whatever blocks beyond its position are looked at: masked tokens add exact
// zeros. Slots beyond a position hold finite values (blocks are zeroed before
// their first use).
class AttentionFormat {
 public:
  virtual ~AttentionFormat() = default;
  virtual std::string_view name() const = 0;          // part of numerics_id
  virtual std::string_view slice_layout() const = 0;  // kv::KvLayout::slice_layout
  virtual KvElement element() const = 0;
  // Puts one token's K and V, head_dim floats each (zeros beyond the model's
  // head size), into slot `slot` of a block's slices.
  virtual void Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot,
                      std::byte* k_slice, std::byte* v_slice) const = 0;
  // Turns a query [head_dim] into what Attend takes: as the keys were turned.
  // Scores are those of query and key up to rounding.
  virtual void PrepareQuery(float* /*query*/, uint32_t /*head_dim*/) const {}
  virtual void Attend(const SegmentTask& task) const = 0;
};

// Folds a segment's (max, sum, out) into a running one, in segment order.
// `total` starts as (kNoScore, 0, 0).
using MergeSegmentFn = void(uint32_t head_dim, float segment_max, float segment_sum,
                            const float* segment_out, float* total_max, float* total_sum,
                            float* total_out);

}  // namespace baton::kernels
