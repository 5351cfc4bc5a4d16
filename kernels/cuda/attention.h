// SPDX-License-Identifier: Apache-2.0
// A warp's part of attention: 16 queries of one KV head against KV blocks of 32
// tokens, on tensor cores with an online softmax (Dao et al., 2022,
// "FlashAttention"). Decoding and prompts are both made of it, so that a row has
// the same bits in either.
//
// The KV slices (kernels/packing/kv_slices.h) are operands as they stand: a
// 32-bit word of a bf16 K slice is two dims of a token, one of a V slice two
// tokens of a dim, which is what a lane of mma.m16n8k16 takes for operand B.
// A lane takes 16 bytes, for the columns of four products: column c of product
// j is token 4 c + j of the block, or dim 4 c + j of 32. In shared memory 16-byte
// chunks are permuted so that eight lanes never meet in a bank.
#pragma once

#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {

inline constexpr uint32_t kQueryRows = 16;
inline constexpr float kNothing = -1e30f;  // kNoScore of kernels/api/attention.h

template <int kDim, KvElement kElement>
struct BlockShape {
  static constexpr bool kInt8 = kElement == KvElement::kInt8;
  static constexpr int kCodeBytes = 32 * kDim * (kInt8 ? 1 : 2);
  static constexpr int kSliceBytes = kCodeBytes + (kInt8 ? 64 : 0);
  static constexpr int kKeyRowChunks = kInt8 ? 2 : 8;  // 16-byte chunks of a K row
  static constexpr int kValueRowChunks = kInt8 ? kDim / 16 : kDim / 4;
  static constexpr int kTimes = kDim / 16;          // k-tiles of the scores
  static constexpr int kWide = kDim >= 32 ? 4 : 2;  // dims that a lane takes at once
  static constexpr int kOuts = kDim / 8;            // column tiles of the context
  struct alignas(16) Block {
    unsigned char key[kSliceBytes];
    unsigned char value[kSliceBytes];
  };
};

// Where chunk `chunk` of a K or V row stands.
template <typename S>
BATON_DEVICE uint32_t KeyChunk(uint32_t row, uint32_t chunk) {
  if constexpr (S::kInt8) return (row ^ (row >> 2 & 1)) * 2 + chunk;
  return row * 8 + (chunk ^ (row & 3) * 2);
}
template <typename S>
BATON_DEVICE uint32_t ValueChunk(uint32_t row, uint32_t chunk) {
  constexpr uint32_t kMask = S::kValueRowChunks - 1;
  const uint32_t turn = (row >> (S::kInt8 ? 3 : 2) & 3) * 2;
  return row * S::kValueRowChunks + (chunk ^ (turn & kMask));
}

// Starts the copies of a block's slices by `threads` threads.
template <typename S>
BATON_DEVICE void LoadBlock(typename S::Block& block, const unsigned char* key,
                            const unsigned char* value, uint32_t thread, uint32_t threads) {
  constexpr uint32_t kChunks = S::kCodeBytes / 16;
  for (uint32_t i = thread; i < kChunks; i += threads) {
    const uint32_t k = KeyChunk<S>(i / S::kKeyRowChunks, i % S::kKeyRowChunks);
    CopyAsync16(&block.key[k * 16], key + i * 16, true);
    const uint32_t v = ValueChunk<S>(i / S::kValueRowChunks, i % S::kValueRowChunks);
    CopyAsync16(&block.value[v * 16], value + i * 16, true);
  }
  for (uint32_t i = kChunks + thread; i < S::kSliceBytes / 16; i += threads) {
    CopyAsync16(&block.key[i * 16], key + i * 16, true);
    CopyAsync16(&block.value[i * 16], value + i * 16, true);
  }
}

// Operand A: 16 queries, bf16 [rows][kDim]; rows beyond `rows` are zeros.
template <typename S, int kDim>
BATON_DEVICE void LoadQueries(const uint16_t* queries, uint32_t rows, uint32_t (&a)[S::kTimes][4]) {
  const uint32_t g = Lane() / 4, t = Lane() % 4;
  BATON_UNROLL
  for (int k = 0; k < S::kTimes; ++k) {
    BATON_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t row = g + i % 2 * 8, dim = k * 16 + i / 2 * 8 + 2 * t;
      a[k][i] = row < rows ? LoadAs<uint32_t>(queries + row * kDim + dim) : 0;
    }
  }
}

// Operand B of k-tile `time` for the four column tiles of the scores.
template <typename S>
BATON_DEVICE void LoadKeys(const unsigned char* keys, int time, uint32_t (&b)[2][4]) {
  const uint32_t g = Lane() / 4, t = Lane() % 4;
  BATON_UNROLL
  for (int half = 0; half < 2; ++half) {
    if constexpr (S::kInt8) {
      const uint32_t dim = time * 16 + half * 8 + 2 * t;
      const auto low = LoadAs<uint32_t>(keys + KeyChunk<S>(dim, g / 4) * 16 + g % 4 * 4);
      const auto high = LoadAs<uint32_t>(keys + KeyChunk<S>(dim + 1, g / 4) * 16 + g % 4 * 4);
      BATON_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        b[half][j] = CodesToBf16(BytePermute(low, high, j * 0x11u | (4 + j) * 0x1100u));
      }
    } else {
      const uint32_t row = time * 8 + half * 4 + t;
      const auto words = LoadAs<Words4>(keys + KeyChunk<S>(row, g) * 16);
      BATON_UNROLL
      for (int j = 0; j < 4; ++j) b[half][j] = words.word[j];
    }
  }
}

// What a lane takes of a V row: kWide dims from `chunk_dims` + kWide g on.
template <typename S>
BATON_DEVICE void LoadInt8Values(const unsigned char* values, uint32_t token, int part,
                                 uint32_t& codes) {
  const uint32_t byte = part * 32 + Lane() / 4 * S::kWide;
  const unsigned char* at = values + ValueChunk<S>(token, byte / 16) * 16 + byte % 16;
  codes = S::kWide == 4 ? LoadAs<uint32_t>(at) : LoadAs<uint16_t>(at);
}

// Operand B for kWide column tiles of the context: tokens `pair` and `pair` + 1
// of the lane (and those 4 behind them) of dims 32 part + ...
template <typename S>
BATON_DEVICE void LoadValues(const unsigned char* values, uint32_t pair, int part,
                             uint32_t (&b)[2][4]) {
  const uint32_t g = Lane() / 4, t = Lane() % 4;
  BATON_UNROLL
  for (int half = 0; half < 2; ++half) {
    const uint32_t token = 8 * t + 4 * half + pair;
    if constexpr (S::kInt8) {
      uint32_t low, high;
      LoadInt8Values<S>(values, token, part, low);
      LoadInt8Values<S>(values, token + 1, part, high);
      BATON_UNROLL
      for (uint32_t i = 0; i < S::kWide; ++i) {
        b[half][i] = CodesToBf16(BytePermute(low, high, i * 0x11u | (4 + i) * 0x1100u));
      }
    } else {
      const uint32_t word = part * 32 + g * S::kWide;
      const unsigned char* at = values + ValueChunk<S>(token / 2, word / 4) * 16 + word % 4 * 4;
      if constexpr (S::kWide == 4) {
        const auto words = LoadAs<Words4>(at);
        BATON_UNROLL
        for (int i = 0; i < 4; ++i) b[half][i] = words.word[i];
      } else {
        BATON_UNROLL
        for (int i = 0; i < S::kWide; ++i) b[half][i] = LoadAs<uint32_t>(at + i * 4);
      }
    }
  }
}

// Scales of the lane's eight tokens 8 t + i of an int8 slice.
template <typename S>
BATON_DEVICE void LoadScales(const unsigned char* slice, float (&scales)[8]) {
  const auto words = LoadAs<Words4>(slice + S::kCodeBytes + Lane() % 4 * 16);
  BATON_UNROLL
  for (int i = 0; i < 4; ++i) {
    scales[2 * i] = LowBf16(words.word[i]);
    scales[2 * i + 1] = HighBf16(words.word[i]);
  }
}

// Running results of 16 rows: of a lane, rows g (index 0) and g + 8 (index 1).
template <typename S>
struct RowState {
  float max[2], sum[2];
  float out[S::kOuts][4];  // as c of Mma; columns as LoadValues permutes them

  BATON_DEVICE void Clear() {
    BATON_UNROLL
    for (int r = 0; r < 2; ++r) {
      max[r] = kNothing;
      sum[r] = 0;
    }
    BATON_UNROLL
    for (int i = 0; i < S::kOuts; ++i) {
      BATON_UNROLL
      for (int j = 0; j < 4; ++j) out[i][j] = 0;
    }
  }
};

// Scores of the block's tokens: [j][i] of row g + 8 (i / 2), token
// 8 t + 4 (i % 2) + j.
template <typename S>
BATON_DEVICE void Score(const typename S::Block& block, const uint32_t (&queries)[S::kTimes][4],
                        float (&scores)[4][4]) {
  BATON_UNROLL
  for (int time = 0; time < S::kTimes; ++time) {
    uint32_t b[2][4];
    LoadKeys<S>(block.key, time, b);
    BATON_UNROLL
    for (int j = 0; j < 4; ++j) Mma(scores[j], queries[time], b[0][j], b[1][j]);
  }
  if constexpr (S::kInt8) {
    float scales[8];
    LoadScales<S>(block.key, scales);
    BATON_UNROLL
    for (int j = 0; j < 4; ++j) {
      BATON_UNROLL
      for (int i = 0; i < 4; ++i) scores[j][i] = MulRn(scores[j][i], scales[4 * (i % 2) + j]);
    }
  }
}

// Takes the block's scores into the row's maximum; they become weights, 0 for
// what is masked. What was there is to be multiplied by the result. While a row
// has seen nothing its weights mean nothing: the first token that it sees, or
// the merge, multiplies them by 0.
template <typename S>
BATON_DEVICE float Weigh(RowState<S>& state, int r, float (&scores)[4][4]) {
  float best = state.max[r];
  BATON_UNROLL
  for (int j = 0; j < 4; ++j) best = Most(best, Most(scores[j][2 * r], scores[j][2 * r + 1]));
  best = Most(best, ShuffleXor(best, 1));
  best = Most(best, ShuffleXor(best, 2));
  const float keep = Exp2(SubRn(state.max[r], best));
  state.max[r] = best;
  float sum = 0;
  BATON_UNROLL
  for (int j = 0; j < 4; ++j) {
    BATON_UNROLL
    for (int i = 2 * r; i < 2 * r + 2; ++i) {
      scores[j][i] = Exp2(SubRn(scores[j][i], best));
      sum = AddRn(sum, scores[j][i]);
    }
  }
  state.sum[r] = Fma(state.sum[r], keep, sum);
  return keep;
}

// state.out += weights of the block times its values.
template <typename S>
BATON_DEVICE void AddValues(const typename S::Block& block, float (&weights)[4][4],
                            RowState<S>& state) {
  if constexpr (S::kInt8) {
    float scales[8];
    LoadScales<S>(block.value, scales);
    BATON_UNROLL
    for (int j = 0; j < 4; ++j) {
      BATON_UNROLL
      for (int i = 0; i < 4; ++i) weights[j][i] = MulRn(weights[j][i], scales[4 * (i % 2) + j]);
    }
  }
  BATON_UNROLL
  for (uint32_t pair = 0; pair < 4; pair += 2) {
    uint32_t a[4];
    BATON_UNROLL
    for (int i = 0; i < 4; ++i) {
      // a[0], a[1]: rows g, g + 8 of tokens 8 t + pair; a[2], a[3]: 4 behind.
      const int c = i % 2 * 2 + i / 2;
      a[i] = FloatsToBf16(weights[pair][c], weights[pair + 1][c]);
    }
    BATON_UNROLL
    for (int part = 0; part < S::kOuts / S::kWide; ++part) {
      uint32_t b[2][4];
      LoadValues<S>(block.value, pair, part, b);
      BATON_UNROLL
      for (int i = 0; i < S::kWide; ++i) Mma(state.out[part * S::kWide + i], a, b[0][i], b[1][i]);
    }
  }
}

// One block: token `first_token` + i is seen by row r up to limits[r] (rows g
// and g + 8 of the lane); negative: it sees none.
template <typename S>
BATON_DEVICE void AttendBlock(const typename S::Block& block,
                              const uint32_t (&queries)[S::kTimes][4], int32_t first_token,
                              const int32_t (&limits)[2], RowState<S>& state) {
  float scores[4][4] = {};
  Score<S>(block, queries, scores);
  const auto token = first_token + static_cast<int32_t>(Lane() % 4 * 8);
  BATON_UNROLL
  for (int j = 0; j < 4; ++j) {
    BATON_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (token + 4 * (i % 2) + j > limits[i / 2]) scores[j][i] = kNothing;
    }
  }
  BATON_UNROLL
  for (int r = 0; r < 2; ++r) {
    const float keep = Weigh(state, r, scores);
    BATON_UNROLL
    for (int i = 0; i < S::kOuts; ++i) {
      state.out[i][2 * r] = MulRn(state.out[i][2 * r], keep);
      state.out[i][2 * r + 1] = MulRn(state.out[i][2 * r + 1], keep);
    }
  }
  AddValues(block, scores, state);
}

// The sums of a segment are in four lanes' parts until it ends.
template <typename S>
BATON_DEVICE void EndSegment(RowState<S>& state) {
  BATON_UNROLL
  for (int r = 0; r < 2; ++r) {
    state.sum[r] = AddRn(state.sum[r], ShuffleXor(state.sum[r], 1));
    state.sum[r] = AddRn(state.sum[r], ShuffleXor(state.sum[r], 2));
  }
}

// Folds segments, in order: total = total * keep + segment * add.
struct MergeFactors {
  float max, keep, add;
};
BATON_DEVICE MergeFactors FactorsOf(float total_max, float segment_max) {
  const float max = Most(total_max, segment_max);
  return {max, Exp2(SubRn(total_max, max)), Exp2(SubRn(segment_max, max))};
}
BATON_DEVICE float Merged(float total, float segment, const MergeFactors& factors) {
  return Fma(segment, factors.add, MulRn(total, factors.keep));
}

// Dim of column tile `tile`, column 2 t + `column` of the context.
template <typename S>
BATON_DEVICE uint32_t DimOf(int tile, uint32_t column) {
  return tile / S::kWide * 32 + (Lane() % 4 * 2 + column) * S::kWide + tile % S::kWide;
}

BATON_DEVICE const unsigned char* KeySlice(const KvPool& pool, uint32_t block, uint32_t kv_head) {
  return static_cast<const unsigned char*>(pool.data) + block * pool.block_bytes +
         pool.layer_offset + size_t{kv_head} * pool.slice_bytes;
}
BATON_DEVICE const unsigned char* ValueSlice(const KvPool& pool, uint32_t block, uint32_t kv_head) {
  return KeySlice(pool, block, kv_head) + size_t{pool.kv_heads} * pool.slice_bytes;
}

// The first entry of a table from `entry` on that a position of the step sees.
BATON_DEVICE uint32_t SeenFrom(const uint32_t* table, uint32_t entry) {
  return (table[entry] & kUnseenBlock) != 0 ? table[entry] & ~kUnseenBlock : entry;
}

// Calls launch.operator()<head size, element>() for what the pool holds.
template <typename Function>
bool ForPool(const KvPool& pool, Function launch) {
  const bool int8 = pool.element == KvElement::kInt8;
  const auto element = [&]<int kDim>() {
    int8 ? launch.template operator()<kDim, KvElement::kInt8>()
         : launch.template operator()<kDim, KvElement::kBf16>();
  };
  switch (pool.head_dim) {
    case 16:
      element.template operator()<16>();
      return true;
    case 64:
      element.template operator()<64>();
      return true;
    case 128:
      element.template operator()<128>();
      return true;
    default:
      return false;
  }
}

}  // namespace baton::gpu
