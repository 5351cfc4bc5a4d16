// SPDX-License-Identifier: Apache-2.0
// The GPU kernels, one function each. Plain structs of device pointers: the
// same table is filled by a CUDA build and by the emulator.
//
// All of them only start work on `stream`; errors of a start are kept by the
// device (device_table.h). Pointers are 16-byte aligned. A row's results have
// the same bits whatever rows stand beside it, in every kernel and tile size.
#pragma once

#include <cstdint>

#include "kernels/cuda/api/fragments.h"

namespace baton::gpu {

using Stream = void*;
using Event = void*;

// Tokens of a KV block and of an attention segment, as in kernels/api.
inline constexpr uint32_t kBlockTokens = 32;
inline constexpr uint32_t kSegmentTokens = 256;

enum class TableType : uint8_t { kF32, kF16, kBf16 };

// x[row] = table[token of the row]. A token outside of the vocabulary, such as a
// chosen one that is none (Sample), counts as 0.
struct EmbedTask {
  TableType type;
  const void* table;       // [vocabulary, hidden]
  const uint32_t* tokens;  // [rows]
  const int32_t* sources;  // [rows]: index in `chosen` of the row's token; negative: tokens[row]
  const uint32_t* chosen;  // by the step before; null, like sources, where no row asks for it
  float* x;                // [rows, hidden]
  uint32_t rows, hidden;   // hidden a multiple of 32
  uint32_t vocabulary;
};
void Embed(const EmbedTask& task, Stream stream);

// out[row] = bf16(x[source[row]] / sqrt(mean(x^2) + epsilon) * weight).
struct NormTask {
  const float* x;          // [rows, hidden]
  const float* weight;     // [hidden]
  const uint32_t* source;  // [rows], or null: row itself
  void* out;               // activations (fragments.h)
  uint32_t rows, hidden;   // hidden a multiple of 32
  float epsilon;
  bool plain = false;  // out: plain rows instead (fragments.h)
};
void RmsNorm(const NormTask& task, Stream stream);

enum class Epilogue : uint8_t {
  kStore,  // out[row, c] = product + bias[c], float32
  kAdd,    // out[row, c] += product, float32: the residual
  // Outputs come in tiles of 8 gates and their 8 ups: bf16(gate / (1 +
  // exp(-gate)) * up) to activations of outputs / 2 inputs.
  kSwiGlu,
};

// Products of packed weights and activations. Every output is the sum over
// groups of 32 inputs, in order, of the group's product times its scale.
struct LinearTask {
  WeightFormat format;
  Epilogue epilogue;
  const void* weights;  // records (fragments.h)
  const void* rows;     // activations
  const float* bias;    // [outputs] or null
  void* out;
  uint32_t out_stride;  // floats from row to row
  uint32_t row_count, outputs, inputs;
};
void Linear(const LinearTask& task, Stream stream);

// What rows of weights are stored as, of which the device packs records; blocks are
// those of GGUF.
enum class StoredType : uint8_t { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1, kQ4K };
BATON_ANYWHERE constexpr WeightFormat FormatOf(StoredType type) {
  return type == StoredType::kQ8_0                               ? WeightFormat::kInt8
         : type == StoredType::kQ4_0                             ? WeightFormat::kInt4
         : type == StoredType::kQ4_1 || type == StoredType::kQ4K ? WeightFormat::kInt4Affine
                                                                 : WeightFormat::kBf16;
}

// Rows as stored into records (fragments.h), as PackTile of pack.h makes them; rows
// behind the last of its tile are zeros.
struct PackTask {
  StoredType type;
  const void* rows;  // [row_count], row_bytes each: aligned as the type's numbers
  uint64_t row_bytes;
  void* out;  // records of TilesOf(row_count) tiles
  uint32_t row_count, inputs;
};
void PackWeights(const PackTask& task, Stream stream);

// Packed weights as plain rows (fragments.h): what is more than bf16 can hold is
// rounded.
struct UnpackTask {
  WeightFormat format;
  const void* weights;  // records
  void* out;            // [outputs, inputs]
  uint32_t outputs, inputs;
};
void UnpackWeights(const UnpackTask& task, Stream stream);

// Activations as plain rows.
struct PlainRowsTask {
  const void* from;  // activations
  void* out;         // [rows, inputs]
  uint32_t rows, inputs;
};
void PlainRows(const PlainRowsTask& task, Stream stream);

// As the epilogue of that name, of a product that stands in float32.
struct SwiGluTask {
  const float* from;      // [rows, 2 x inputs]: 8 gates, their 8 ups, ...
  void* out;              // plain rows [rows, inputs]
  uint32_t rows, inputs;  // inputs a multiple of 32
};
void SwiGlu(const SwiGluTask& task, Stream stream);

enum class KvElement : uint8_t { kBf16, kInt8 };

// Where KV blocks are: block b's K slice of a head at
// pool + b * block_bytes + layer_offset + head * slice_bytes, V
// kv_heads * slice_bytes behind it (kv::KvLayout).
struct KvPool {
  KvElement element;
  void* data;
  uint64_t block_bytes, layer_offset;
  uint32_t kv_heads, slice_bytes, head_dim;
};

enum class RopePairs : uint8_t { kAdjacent, kHalves };

// Rotates q and k, stores q for attention, appends k and v to their blocks.
struct QkvTask {
  const float* qkv;          // [rows, heads + 2 kv_heads, head_dim], with bias
  const float* angles;       // [positions, rotary_dims / 2] cosines, then as many sines
  uint64_t sines_at;         // floats between the two
  const int32_t* positions;  // [rows]; negative: a padded row, nothing is done
  const uint32_t* blocks;    // [rows]: of the row's token
  void* q;                   // bf16 [kv_heads][rows * group][head_dim], scaled, for int8 turned
  KvPool pool;
  RopePairs pairs;
  uint32_t rows, heads, rotary_dims;
  float scale;  // log2(e) / sqrt(head_dim)
};
void RopeAppend(const QkvTask& task, Stream stream);

// Entries of attention's block tables: a block id, with kKeptBlock where every later
// position of the sequence sees the block, too; or, where no position of the step
// sees one, kUnseenBlock and the next entry that one does. Without a window they
// are plain ids.
inline constexpr uint32_t kUnseenBlock = 1u << 31, kKeptBlock = 1u << 30;
inline constexpr uint32_t kBlockIdMask = kKeptBlock - 1;

// One position of one sequence each; segments side by side, then merged.
struct DecodeTask {
  KvPool pool;
  const void* q;             // as QkvTask leaves it
  const uint32_t* q_rows;    // [sequences]: row of the step
  const int32_t* positions;  // [sequences]; negative: padded, its row is left alone
  const uint32_t* tables;    // [sequences, table_stride] entries as above
  float* partial_out;        // [sequences, heads, segments, head_dim]
  float* partial_sums;       // the same without head_dim, [2]: maximum and sum
  void* context;             // activations [rows, heads * head_dim]
  uint32_t sequences, step_rows, heads, table_stride;
  uint32_t segments;  // most of any sequence: position / 256 + 1
};
void DecodeAttention(const DecodeTask& task, Stream stream);

// 64 queries (position-major, then head of the group) of a KV head.
struct PrefillItem {
  uint32_t first_row;       // of the slice in the step
  uint32_t first, count;    // packed rows of the slice: token * group + head
  uint32_t first_position;  // of the slice
  uint32_t table;           // row of tables
  uint32_t before;          // blocks that a position sees before its own, beside kept ones
};
inline constexpr uint32_t kAllBefore = 0xffffffff;
inline constexpr uint32_t kPrefillRows = 64;
struct PrefillTask {
  KvPool pool;
  const void* q;
  const PrefillItem* items;  // [item_count], each for all KV heads
  const uint32_t* tables;    // [.., table_stride] entries as above
  void* context;             // activations [rows, heads * head_dim]
  uint32_t item_count, step_rows, heads, table_stride;
};
void PrefillAttention(const PrefillTask& task, Stream stream);

// Copies of `bytes` (a multiple of 16) from from_base + from[i] * from_stride +
// from_offset to to_base + to[i] * to_stride + to_offset. Null index: i itself;
// so blocks are copied, gathered into a run of memory, scattered from one.
struct CopyTask {
  const void* from_base;
  void* to_base;
  const uint32_t* from;
  const uint32_t* to;
  uint64_t from_stride, from_offset, to_stride, to_offset, bytes;
  uint32_t count;
};
void CopyBlocks(const CopyTask& task, Stream stream);
// Zeroes `bytes` at base + index[i] * stride.
struct ZeroTask {
  void* base;
  const uint32_t* index;
  uint64_t stride, bytes;
  uint32_t count;
};
void ZeroBlocks(const ZeroTask& task, Stream stream);

// CRC-32C of KV slices: of each of the first `count` runs, `slices` one behind the
// other, slice_bytes long (a multiple of 4). `out` [count, slices] may be pinned
// memory of the host.
struct ChecksumTask {
  static constexpr uint32_t kMostRuns = 64;
  const void* runs[kMostRuns];
  uint32_t* out;
  uint32_t count, slices, slice_bytes;
};
void Checksums(const ChecksumTask& task, Stream stream);

// How a row's token is chosen: common/sampling's chain, to the bit.
struct SampleRow {
  uint32_t usable_vocabulary;
  uint32_t top_k;  // 0: off
  float temperature, top_p, min_p;
  float repetition_penalty, presence_penalty, frequency_penalty;
  uint64_t seed;
  uint32_t choice, output_index;
  uint32_t history_begin, history_end;  // in SampleTask::history
  uint32_t bias_begin, bias_end;        // in SampleTask::biases
  uint32_t banned_begin, banned_end;    // in SampleTask::banned
  uint32_t mask_begin, mask_words;      // in SampleTask::masks; no words: all are allowed
};
struct TokenCount {
  uint32_t token, outputs;  // times in the output; 0: in the prompt alone
};
struct TokenBias {
  uint32_t token;
  float bias;
};
// What the kernel says instead of a token.
inline constexpr uint32_t kNotFinite = 0xffffffff, kAllBanned = 0xfffffffe;
struct SampleTask {
  const SampleRow* rows;  // [row_count]
  const TokenCount* history;
  const TokenBias* biases;
  const uint32_t* banned;
  const uint32_t* masks;  // bit i of a row's words: token i is allowed; beyond them none is
  float* logits;          // [row_count, stride]; edited in place
  float* weights;         // [row_count, stride]: working memory
  uint32_t* tokens;       // [row_count]
  uint32_t row_count, stride;
};
void Sample(const SampleTask& task, Stream stream);

}  // namespace baton::gpu
