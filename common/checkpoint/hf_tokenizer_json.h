// SPDX-License-Identifier: Apache-2.0
// The files that Hugging Face's tokenizers write.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/file.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton::checkpoint {

struct HfTokenizerSettings {
  std::vector<TokenId> end_tokens;
  std::vector<tokenizer::AddedToken> added_tokens;
  std::optional<bool> adds_bos;  // else what the file itself says
  std::string bos_name;
};

// tokenizer.json. UNIMPLEMENTED for models other than BPE and for
// pre-tokenizers or normalizers that are not known here.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizerJson(
    const File& file, const HfTokenizerSettings& settings);

// vocab.json and merges.txt.
absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadVocabAndMerges(
    const File& vocabulary, const File& merges, std::string_view pre_tokenizer,
    const HfTokenizerSettings& settings);

}  // namespace baton::checkpoint
