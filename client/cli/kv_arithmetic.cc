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

absl::Status CheckWindowOf(const KvQuestion& question) {
  BATON_RETURN_IF_ERROR(kv::CheckWindow(question.window));
  if (question.prompt == 0 || question.prompt <= question.context) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--prompt is ", question.prompt, "; --context is ", question.context));
}

std::string TypeName(kv::KvType type) { return std::string(kv::KvTypeName(type)); }

// Most blocks that a sequence holds at once: what an engine asks of its pool.
uint64_t BlocksOf(const KvQuestion& question) {
  // A prompt gets those of the first token behind it, too.
  const uint64_t together = question.prompt == 0 ? 0 : uint64_t{question.prompt} + 1;
  return kv::MostBlocks(question.window, together, question.context);
}

// "128 head size x 2 bytes (bf16)", with its scale if it has one.
std::string RowTerm(const KvQuestion& question, const KvAnswer& answer) {
  const size_t scale = kv::KvScaleBytes(question.type);
  const std::string numbers = absl::StrFormat("%u head size x %u bytes", answer.stored_head_dim,
                                              kv::KvTypeBytes(question.type));
  if (scale == 0) return absl::StrCat(numbers, " (", TypeName(question.type), ")");
  return absl::StrFormat("(%s + %u of scale) (%s)", numbers, scale, TypeName(question.type));
}

// What its last token sees.
std::string HeldTerm(const KvQuestion& question) {
  const kv::Window& window = question.window;
  std::string text = absl::StrFormat("%u sinks / %u + %u window / %u + 1", window.sinks,
                                     kv::kBlockTokens, window.tokens, kv::kBlockTokens);
  if (!window.sparse() || question.context == 0) return text;
  const uint32_t behind = window.FirstBlock(question.context - 1);
  const uint32_t sinks = std::min(behind, window.sinks / kv::kBlockTokens);
  return absl::StrFormat("%s + %u of stride and ranges", text, window.KeptBelow(behind) - sinks);
}

// How many blocks a sequence has, with the reason.
std::string BlocksTerm(const KvQuestion& question, const KvAnswer& answer) {
  std::string all = absl::StrFormat("ceil(%u tokens / %u)", question.context, kv::kBlockTokens);
  if (question.window.limited()) {
    std::string held = HeldTerm(question);
    if (question.prompt > 0) {
      held = absl::StrFormat("max(ceil((%u of the prompt + 1) / %u), %s)", question.prompt,
                             kv::kBlockTokens, held);
    }
    all = absl::StrFormat("min(%s, %s)", all, held);
  }
  return absl::StrFormat("%s = %u blocks each", all, answer.blocks_per_sequence);
}

void AddWindow(const KvQuestion& question, nlohmann::ordered_json* json) {
  const kv::Window& window = question.window;
  if (!window.limited()) return;
  (*json)["window"] = window.tokens;
  (*json)["sinks"] = window.sinks;
  (*json)["stride"] = window.stride;
  nlohmann::ordered_json& keep = (*json)["keep"] = nlohmann::ordered_json::array();
  for (const kv::TokenRange& range : window.keep) {
    if (range.end > 0) keep.push_back({range.begin, range.end});
  }
  (*json)["prompt"] = question.prompt;
}

}  // namespace

absl::StatusOr<KvAnswer> ComputeKv(const KvQuestion& question) {
  BATON_RETURN_IF_ERROR(CheckRange("layers", question.layers, kMostLayers));
  BATON_RETURN_IF_ERROR(CheckRange("kv-heads", question.kv_heads, kMostHeads));
  BATON_RETURN_IF_ERROR(CheckRange("head-dim", question.head_dim, kMostHeadDim));
  BATON_RETURN_IF_ERROR(CheckRange("batch", question.batch, kMostSequences));
  BATON_RETURN_IF_ERROR(CheckWindowOf(question));
  KvAnswer answer;
  answer.stored_head_dim = (question.head_dim + 15) / 16 * 16;
  answer.bytes_per_token = uint64_t{2} * question.layers * question.kv_heads *
                           kv::KvRowBytes(question.type, answer.stored_head_dim);
  answer.bytes_per_block = answer.bytes_per_token * kv::kBlockTokens;
  answer.blocks_per_sequence = BlocksOf(question);
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
    AddWindow(question, &json);
    json["blocks_per_sequence"] = answer.blocks_per_sequence;
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
