// SPDX-License-Identifier: Apache-2.0
// How sentencepiece writes text into its pieces.
#pragma once

#include <string>
#include <string_view>

#include "common/tokenizer/vocabulary.h"

namespace baton::tokenizer {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, a space in a piece

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

// The byte of "<0x0A>", or -1.
int ParseByteName(std::string_view name);

// What a token decodes to: empty for control tokens and outside the vocabulary.
std::string PieceBytes(const Vocabulary& vocabulary, TokenId id);

}  // namespace baton::tokenizer
