// SPDX-License-Identifier: Apache-2.0
// The shape of KV blocks: what two workers must agree on before one writes
// into the other's blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton::kv {

// Tokens in a block.
inline constexpr uint32_t kBlockTokens = 32;

// kInt8: 8-bit codes with a 16-bit scale for each token's K and V of a head.
enum class KvType : uint8_t { kF32, kBf16, kInt8 };

std::string_view KvTypeName(KvType type);  // "f32", "bf16", "int8"
absl::StatusOr<KvType> ParseKvType(std::string_view name);
size_t KvTypeBytes(KvType type);   // of one number
size_t KvScaleBytes(KvType type);  // beside each K or V of a head
// One token's K or V of one head.
inline size_t KvRowBytes(KvType type, uint32_t head_dim) {
  return KvTypeBytes(type) * head_dim + KvScaleBytes(type);
}

// What KV that is handed over is to the worker that takes it.
enum class KvOrigin : uint8_t {
  kOwn,        // the bits that it would compute itself
  kConverted,  // of its own kernels, but of another KV type there or on the way
  kMixed,      // of other kernels: near what it would compute, for an operator to allow
};

// A block holds kBlockTokens tokens of all layers, in the order
// [layer][K | V][kv head][slice]; a slice is one head's K or V of the block,
// `SliceBytes()` long, its inner order named by `slice_layout`.
struct KvLayout {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;  // stored width: the model's head size rounded up to 16
  KvType type = KvType::kBf16;
  std::string slice_layout;        // such as "k-pairs-v-pairs/1"
  std::string model_fingerprint;   // digest of configuration and weights
  std::string model_variant = {};  // what is computed otherwise than these say; empty: nothing
  std::string compute_id;          // kernel tier and revision, precision
  std::string numerics_id;         // compute_id, attention kernel, KV type

  size_t SliceBytes() const { return kBlockTokens * KvRowBytes(type, head_dim); }
  // K and V of one block in one layer, contiguous.
  size_t LayerBytes() const { return 2 * SliceBytes() * kv_heads; }
  size_t BlockBytes() const { return LayerBytes() * layers; }
};

// Blocks that `tokens` tokens need.
constexpr uint32_t BlocksForTokens(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

// Blocks of `width` branches of one prompt with `outputs` tokens each: full
// blocks of the prompt are shared.
constexpr uint64_t BlocksForBranches(uint64_t prompt, uint64_t outputs, uint32_t width) {
  if (width == 1) return BlocksForTokens(prompt + outputs);
  return prompt / kBlockTokens + uint64_t{width} * BlocksForTokens(prompt % kBlockTokens + outputs);
}

// FAILED_PRECONDITION, naming the first field that differs with both values.
absl::Status CheckCompatible(const KvLayout& ours, const KvLayout& theirs);

}  // namespace baton::kv
