// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/gguf.h"

namespace baton::checkpoint {

// The tokenizer that a GGUF carries (tokenizer.ggml.*); null when it has none.
// UNIMPLEMENTED for a model or pre-tokenizer that is not supported.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadGgufTokenizer(
    const GgufMetadata& metadata, const ModelConfig& config);

bool HasGgufTokenizer(const GgufMetadata& metadata);

}  // namespace baton::checkpoint
