// SPDX-License-Identifier: Apache-2.0
// Sizes that kernels are measured at.
#pragma once

#include <cstdint>
#include <vector>

namespace baton::gpu_bench {

struct Shapes {
  uint32_t hidden, heads, kv_heads, head_dim, ffn, vocabulary;
  std::vector<uint32_t> rows;            // of products and norms
  std::vector<uint32_t> decode_batches;  // sequences of decode_tokens each
  uint32_t decode_tokens;
  std::vector<uint32_t> prompts;  // tokens
  uint64_t copy_bytes;            // of the copy ceiling
  uint64_t spread_bytes;          // of one weight's copies together: beyond any cache

  uint32_t group() const { return heads / kv_heads; }
  uint32_t qkv() const { return (heads + 2 * kv_heads) * head_dim; }
};

inline Shapes ChatGlm2Shapes() {
  return {4096,
          32,
          2,
          128,
          13696,
          65024,
          {1, 8, 32, 64, 256, 512, 2048},
          {1, 8, 64},
          2048,
          {512, 2048, 8192},
          uint64_t{2} << 30,
          uint64_t{512} << 20};
}

// For the emulator: everything is passed through, nothing is a figure.
inline Shapes TinyShapes() {
  return {64, 4, 2, 16, 96, 200, {1, 40}, {2}, 70, {40}, 1 << 16, 1 << 12};
}

}  // namespace baton::gpu_bench
