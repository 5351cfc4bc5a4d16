// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, at most U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Offset of the first byte that is not part of a valid character;
// text.size() when all is valid.
size_t FirstInvalidUtf8(std::string_view text);

inline bool IsValidUtf8(std::string_view text) { return FirstInvalidUtf8(text) == text.size(); }

// Every byte that is not part of a valid character becomes U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

// Length of the longest prefix that ends on a character boundary: what is
// left is the start of a character that more bytes may complete (at most 3).
size_t CompleteUtf8Prefix(std::string_view text);

}  // namespace baton
