// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kv_arithmetic.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

// Far above any model; keeps every product below 64 bits.
constexpr uint32_t kMostLayers = 10'000;
constexpr uint32_t kMostHeads = 10'000;
constexpr uint32_t kMostHeadDim = 65'536;
constexpr uint32_t kMostSequences = 1'000'000;

absl::Status CheckRange(const char* name, uint64_t value, uint64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " must be 1 to ", most, ", got ", value));
}

std::string TypeName(kv::KvType type) { return std::string(kv::KvTypeName(type)); }

// Blocks of a rolling window: it begins and ends anywhere in a block.
uint64_t WindowBlocks(const KvQuestion& question) {
  return uint64_t{kv::BlocksForTokens(question.sinks)} + kv::BlocksForTokens(question.window) + 1;
}

// "128 head size x 2 bytes (bf16)", with its scale if it has one.
std::string RowTerm(const KvQuestion& question, const KvAnswer& answer) {
  const size_t scale = kv::KvScaleBytes(question.type);
  const std::string numbers = absl::StrFormat("%u head size x %u bytes", answer.stored_head_dim,
                                              kv::KvTypeBytes(question.type));
  if (scale == 0) return absl::StrCat(numbers, " (", TypeName(question.type), ")");
  return absl::StrFormat("(%s + %u of scale) (%s)", numbers, scale, TypeName(question.type));
}

// How many blocks a sequence has, with the reason.
std::string BlocksTerm(const KvQuestion& question, const KvAnswer& answer) {
  if (question.window == 0) {
    return absl::StrFormat("ceil(%u tokens / %u) = %u blocks each", question.context,
                           kv::kBlockTokens, answer.blocks_per_sequence);
  }
  return absl::StrFormat(
      "min(ceil(%u tokens / %u), ceil(%u sinks / %u) + ceil(%u window / %u) + 1) = %u blocks each",
      question.context, kv::kBlockTokens, question.sinks, kv::kBlockTokens, question.window,
      kv::kBlockTokens, answer.blocks_per_sequence);
}

}  // namespace

absl::StatusOr<KvAnswer> ComputeKv(const KvQuestion& question) {
  BATON_RETURN_IF_ERROR(CheckRange("layers", question.layers, kMostLayers));
  BATON_RETURN_IF_ERROR(CheckRange("kv-heads", question.kv_heads, kMostHeads));
  BATON_RETURN_IF_ERROR(CheckRange("head-dim", question.head_dim, kMostHeadDim));
  BATON_RETURN_IF_ERROR(CheckRange("batch", question.batch, kMostSequences));
  KvAnswer answer;
  answer.stored_head_dim = (question.head_dim + 15) / 16 * 16;
  answer.bytes_per_token = uint64_t{2} * question.layers * question.kv_heads *
                           kv::KvRowBytes(question.type, answer.stored_head_dim);
  answer.bytes_per_block = answer.bytes_per_token * kv::kBlockTokens;
  answer.blocks_per_sequence = kv::BlocksForTokens(question.context);
  if (question.window > 0) {
    answer.blocks_per_sequence = std::min(answer.blocks_per_sequence, WindowBlocks(question));
  }
  const uint64_t blocks = answer.blocks_per_sequence * question.batch;
  if (__builtin_mul_overflow(blocks, answer.bytes_per_block, &answer.needed_bytes)) {
    return absl::InvalidArgumentError("that is more memory than 64 bits can count");
  }
  answer.blocks_that_fit = question.memory_bytes / answer.bytes_per_block;
  answer.tokens_that_fit = answer.blocks_that_fit * kv::kBlockTokens;
  if (answer.blocks_per_sequence > 0) {
    answer.sequences_that_fit = answer.blocks_that_fit / answer.blocks_per_sequence;
  }
  return answer;
}

std::string ExplainKv(const KvQuestion& question, const KvAnswer& answer) {
  std::string text = absl::StrFormat(
      "bytes per token = 2 (K and V) x %u layers x %u KV heads x %s = %u\n", question.layers,
      question.kv_heads, RowTerm(question, answer), answer.bytes_per_token);
  if (answer.stored_head_dim != question.head_dim) {
    absl::StrAppendFormat(&text, "  (head size %u is stored as %u: rounded up to 16)\n",
                          question.head_dim, answer.stored_head_dim);
  }
  absl::StrAppendFormat(&text, "bytes per block = %u tokens x %u = %u (%s)\n", kv::kBlockTokens,
                        answer.bytes_per_token, answer.bytes_per_block,
                        FormatBytes(answer.bytes_per_block));
  if (question.context > 0) {
    absl::StrAppendFormat(&text, "needed = %u sequences x %s x %u bytes = %u (%s)\n",
                          question.batch, BlocksTerm(question, answer), answer.bytes_per_block,
                          answer.needed_bytes, FormatBothUnits(answer.needed_bytes));
  }
  if (question.memory_bytes > 0) {
    absl::StrAppendFormat(&text, "fits = floor(%u bytes / %u) = %u blocks = %u tokens\n",
                          question.memory_bytes, answer.bytes_per_block, answer.blocks_that_fit,
                          answer.tokens_that_fit);
    if (question.context > 0) {
      absl::StrAppendFormat(&text, "     = %u sequences of %u tokens\n", answer.sequences_that_fit,
                            question.context);
    }
  }
  return text;
}

std::string KvToJson(const KvQuestion& question, const KvAnswer& answer) {
  nlohmann::ordered_json json = {{"layers", question.layers},
                                 {"kv_heads", question.kv_heads},
                                 {"head_dim", question.head_dim},
                                 {"stored_head_dim", answer.stored_head_dim},
                                 {"dtype", TypeName(question.type)},
                                 {"block_tokens", kv::kBlockTokens},
                                 {"bytes_per_token", answer.bytes_per_token},
                                 {"bytes_per_block", answer.bytes_per_block}};
  if (question.context > 0) {
    json["context"] = question.context;
    json["batch"] = question.batch;
    if (question.window > 0) {
      json["window"] = question.window;
      json["sinks"] = question.sinks;
    }
    json["needed_bytes"] = answer.needed_bytes;
  }
  if (question.memory_bytes > 0) {
    json["memory_bytes"] = question.memory_bytes;
    json["blocks_that_fit"] = answer.blocks_that_fit;
    json["tokens_that_fit"] = answer.tokens_that_fit;
    if (question.context > 0) json["sequences_that_fit"] = answer.sequences_that_fit;
  }
  return json.dump();
}

}  // namespace baton::cli
