// SPDX-License-Identifier: Apache-2.0
// How byte-level BPE cuts text into words before it merges inside each.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::tokenizer {

// Thread-safe: immutable.
class PreTokenizer {
 public:
  // By GGUF's names: "gpt-2", "smollm", "llama-bpe" (Llama 3), "qwen2".
  // UNIMPLEMENTED for other names, with the list.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Make(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // Words of `text` in order; together they are all of it.
  // REQUIRES: valid UTF-8.
  std::vector<std::string_view> Split(std::string_view text) const;

  // Llama 3's convention: a word that is a token is taken without merging.
  bool ignores_merges() const { return ignores_merges_; }

 private:
  struct Stage;  // one compiled expression
  PreTokenizer();

  std::vector<std::unique_ptr<Stage>> stages_;  // each cuts the words of the one before
  bool ignores_merges_ = false;
};

std::vector<std::string> PreTokenizerNames();

}  // namespace baton::tokenizer
