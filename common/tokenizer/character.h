// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton::tokenizer {

// Bytes of the character at the front of `text`, which must not be empty, by
// its first byte. Never more than there are; 1 where no character begins.
inline size_t CharacterLength(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(length, text.size());
}

}  // namespace baton::tokenizer
