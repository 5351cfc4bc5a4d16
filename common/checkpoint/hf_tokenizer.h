// SPDX-License-Identifier: Apache-2.0
// Tokenizers of Hugging Face folders.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file.h"

namespace baton::checkpoint {

// True when the folder holds a tokenizer that LoadHfTokenizer reads.
bool HasHfTokenizer(const Folder& folder);

// From tokenizer.model (sentencepiece), tokenizer.json (byte-level BPE, or
// Llama's BPE with byte fallback), or vocab.json with merges.txt; null when
// none is there. INVALID_ARGUMENT also when there are more tokens than rows in
// the embedding.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadHfTokenizer(const Folder& folder,
                                                                      const ModelConfig& config);

// The prompt format: from chat_template.jinja or tokenizer_config.json, for
// ChatGLM also from the name the model was published under.
absl::StatusOr<Checkpoint::ChatFormat> DetectHfChatFormat(const Folder& folder,
                                                          const ModelConfig& config);

}  // namespace baton::checkpoint
