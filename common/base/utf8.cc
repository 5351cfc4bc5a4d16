// SPDX-License-Identifier: Apache-2.0
#include "common/base/utf8.h"

#include <cstdint>

namespace baton {
namespace {

bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bytes that a character starting with `lead` has; 0 when none starts so.
size_t CharacterBytes(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Whether `second` may follow `lead`: this is where overlong forms, surrogates
// and values beyond U+10FFFF fall out.
bool SecondByteFits(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return IsContinuation(second);
  }
}

// Bytes of the valid character at the start of `text`, or 0.
size_t ValidCharacter(std::string_view text) {
  const size_t bytes = CharacterBytes(static_cast<uint8_t>(text[0]));
  if (bytes == 0 || bytes > text.size()) return 0;
  if (bytes > 1 && !SecondByteFits(static_cast<uint8_t>(text[0]), static_cast<uint8_t>(text[1]))) {
    return 0;
  }
  for (size_t i = 2; i < bytes; ++i) {
    if (!IsContinuation(static_cast<uint8_t>(text[i]))) return 0;
  }
  return bytes;
}

}  // namespace

size_t FirstInvalidUtf8(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const size_t bytes = ValidCharacter(text.substr(offset));
    if (bytes == 0) return offset;
    offset += bytes;
  }
  return offset;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = FirstInvalidUtf8(text);
    result.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    result.append(kReplacementCharacter);
    text.remove_prefix(1);
  }
  return result;
}

size_t CompleteUtf8Prefix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t start = text.size() - back;
    const auto lead = static_cast<uint8_t>(text[start]);
    if (IsContinuation(lead)) continue;
    const size_t bytes = CharacterBytes(lead);
    if (bytes <= back) return text.size();  // complete, or never valid
    if (back >= 2 && !SecondByteFits(lead, static_cast<uint8_t>(text[start + 1]))) {
      return text.size();
    }
    return start;
  }
  return text.size();
}

}  // namespace baton
