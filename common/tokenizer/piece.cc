// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/piece.h"

namespace baton::tokenizer {

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0;;) {
    const size_t next = text.find(from, at);
    out += text.substr(at, next == std::string_view::npos ? next : next - at);
    if (next == std::string_view::npos) return out;
    out += to;
    at = next + from.size();
  }
}

int ParseByteName(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  int value = 0;
  for (char c : name.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'A' && c <= 'F';
    if (!digit && !letter) return -1;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

std::string PieceBytes(const Vocabulary& vocabulary, TokenId id) {
  if (id >= vocabulary.size()) return {};
  switch (vocabulary.kind(id)) {
    case TokenKind::kControl:
      return {};
    case TokenKind::kUnknown:
      return " \xE2\x81\x87 ";  // U+2047, as the library shows it
    case TokenKind::kByte:
      return std::string(1, static_cast<char>(ParseByteName(vocabulary.text(id))));
    default:
      return ReplaceAll(vocabulary.text(id), kSpaceMark, " ");
  }
}

}  // namespace baton::tokenizer
