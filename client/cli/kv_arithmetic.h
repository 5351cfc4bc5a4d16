// SPDX-License-Identifier: Apache-2.0
// How much memory the KV cache of a model takes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/kv/layout.h"
#include "common/kv/window.h"

namespace baton::cli {

struct KvQuestion {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  kv::KvType type = kv::KvType::kBf16;
  uint32_t context = 0;  // tokens of one sequence; 0: not asked
  uint32_t batch = 1;    // sequences
  kv::Window window = {};
  // With a window: tokens of the sequence that are a prompt computed on the same
  // worker, which gets blocks for all of it; 0: it was handed over.
  uint32_t prompt = 0;
  uint64_t memory_bytes = 0;  // 0: not asked
};

struct KvAnswer {
  uint32_t stored_head_dim = 0;  // head_dim rounded up to 16
  uint64_t bytes_per_token = 0;
  uint64_t bytes_per_block = 0;
  uint64_t blocks_per_sequence = 0;  // of `context` tokens: most that it holds at once
  uint64_t needed_bytes = 0;         // `batch` sequences of `context` tokens, in whole blocks
  uint64_t blocks_that_fit = 0;      // into memory_bytes
  uint64_t tokens_that_fit = 0;
  uint64_t sequences_that_fit = 0;  // of `context` tokens
};

// INVALID_ARGUMENT names the number that makes no model or no window, or when the
// result does not fit 64 bits.
absl::StatusOr<KvAnswer> ComputeKv(const KvQuestion& question);

// The formula with its numbers, one line per result.
std::string ExplainKv(const KvQuestion& question, const KvAnswer& answer);
// One JSON object with question and answer.
std::string KvToJson(const KvQuestion& question, const KvAnswer& answer);

}  // namespace baton::cli
