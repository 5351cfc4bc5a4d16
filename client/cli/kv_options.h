// SPDX-License-Identifier: Apache-2.0
// What a smaller KV cache would take: fewer KV heads, 8-bit numbers, a window.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/kv_arithmetic.h"

namespace baton::cli {

// A table with one line per choice of KV heads (one per query head, one per 8
// of them, the model's own), type (bf16, int8) and window (none, that of
// `question`, or 1,024 tokens behind 32 sinks), for one sequence of
// question.context tokens: of the shape in `question` when it has layers, and
// of GPT-3, Llama-2-7B and ChatGLM2-6B. INVALID_ARGUMENT as of ComputeKv.
absl::StatusOr<std::string> KvOptionsTable(const KvQuestion& question);

}  // namespace baton::cli
