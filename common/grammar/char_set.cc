// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/char_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace baton::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

void AddWithoutSurrogates(CodeRange range, std::vector<CodeRange>& out) {
  range.last = std::min(range.last, kLastCodePoint);
  if (range.first < kFirstSurrogate && range.first <= range.last) {
    out.push_back({range.first, std::min(range.last, kFirstSurrogate - 1)});
  }
  const uint32_t first = std::max(range.first, kLastSurrogate + 1);
  if (first <= range.last) out.push_back({first, range.last});
}

// Characters beyond ASCII whose category is one of the bits of `categories`.
CharSet BeyondAscii(uint32_t categories) {
  std::vector<CodeRange> ranges;
  for (uint32_t code = 0x80; code <= kLastCodePoint; ++code) {
    const int category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    if ((categories >> category & 1) == 0) continue;
    if (!ranges.empty() && ranges.back().last + 1 == code) {
      ranges.back().last = code;
    } else {
      ranges.push_back({code, code});
    }
  }
  return CharSet::Of(ranges);
}

constexpr uint32_t Bit(int category) { return 1u << category; }

constexpr uint32_t kLetters = Bit(UTF8PROC_CATEGORY_LU) | Bit(UTF8PROC_CATEGORY_LL) |
                              Bit(UTF8PROC_CATEGORY_LT) | Bit(UTF8PROC_CATEGORY_LM) |
                              Bit(UTF8PROC_CATEGORY_LO);
constexpr uint32_t kNumbers =
    Bit(UTF8PROC_CATEGORY_ND) | Bit(UTF8PROC_CATEGORY_NL) | Bit(UTF8PROC_CATEGORY_NO);
constexpr uint32_t kMarks =
    Bit(UTF8PROC_CATEGORY_MN) | Bit(UTF8PROC_CATEGORY_MC) | Bit(UTF8PROC_CATEGORY_ME);
constexpr uint32_t kSeparators =
    Bit(UTF8PROC_CATEGORY_ZS) | Bit(UTF8PROC_CATEGORY_ZL) | Bit(UTF8PROC_CATEGORY_ZP);

Shorthand MakeDigits() {
  const CharSet ascii = CharSet::Of({{'0', '9'}});
  return {ascii, ascii.Union(BeyondAscii(kNumbers))};
}

Shorthand MakeWordCharacters() {
  const CharSet ascii = CharSet::Of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  // Unassigned ones may be letters in the reader's version of Unicode.
  const uint32_t categories =
      kLetters | kNumbers | kMarks | Bit(UTF8PROC_CATEGORY_PC) | Bit(UTF8PROC_CATEGORY_CN);
  return {ascii, ascii.Union(BeyondAscii(categories))};
}

Shorthand MakeSpaces() {
  const CharSet ascii = CharSet::Of({{'\t', '\r'}, {' ', ' '}});
  // Python takes the separators of ASCII and U+0085, ECMAScript U+FEFF.
  const CharSet more =
      CharSet::Of({{0x1C, 0x1F}, {0x85, 0x85}, {0x180E, 0x180E}, {0xFEFF, 0xFEFF}});
  return {ascii, ascii.Union(more).Union(BeyondAscii(kSeparators))};
}

struct Length {
  uint32_t last;  // code point of this length
  uint32_t size;
};
constexpr Length kLengths[] = {{0x7F, 1}, {0x7FF, 2}, {0xFFFF, 3}, {kLastCodePoint, 4}};

void Encode(uint32_t code, uint32_t size, uint8_t* out) {
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (uint32_t i = size; i-- > 1; code >>= 6) out[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
  out[0] = static_cast<uint8_t>(kLead[size] | code);
}

// Cuts [first, last], all of one length, where a byte range would not fit the
// bytes behind it (the method of utf8-ranges and of RE2).
void Cut(uint32_t first, uint32_t last, uint32_t size, std::vector<ByteSequence>& out) {
  for (uint32_t i = 1; i < size; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      Cut(first, first | mask, size, out);
      return Cut((first | mask) + 1, last, size, out);
    }
    if ((last & mask) != mask) {
      Cut(first, (last & ~mask) - 1, size, out);
      return Cut(last & ~mask, last, size, out);
    }
  }
  uint8_t low[4], high[4];
  Encode(first, size, low);
  Encode(last, size, high);
  ByteSequence sequence;
  sequence.size = size;
  for (uint32_t i = 0; i < size; ++i) sequence.bytes[i] = {low[i], high[i]};
  out.push_back(sequence);
}

}  // namespace

CharSet CharSet::Of(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> parts;
  for (const CodeRange& range : ranges) AddWithoutSurrogates(range, parts);
  std::sort(parts.begin(), parts.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  CharSet set;
  for (const CodeRange& part : parts) {
    if (!set.ranges_.empty() && part.first <= set.ranges_.back().last + 1) {
      set.ranges_.back().last = std::max(set.ranges_.back().last, part.last);
    } else {
      set.ranges_.push_back(part);
    }
  }
  return set;
}

CharSet CharSet::All() { return Of({{0, kLastCodePoint}}); }

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<CodeRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return Of(ranges);
}

CharSet CharSet::Minus(const CharSet& other) const {
  std::vector<CodeRange> left;
  auto cut = other.ranges_.begin();
  for (CodeRange range : ranges_) {
    while (cut != other.ranges_.end() && cut->last < range.first) ++cut;
    bool gone = false;
    for (auto at = cut; at != other.ranges_.end() && at->first <= range.last; ++at) {
      if (at->first > range.first) left.push_back({range.first, at->first - 1});
      gone = at->last >= range.last;
      if (gone) break;
      range.first = at->last + 1;
    }
    if (!gone) left.push_back(range);
  }
  return Of(left);
}

bool CharSet::Contains(uint32_t code) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](uint32_t value, const CodeRange& range) { return value < range.first; });
  return after != ranges_.begin() && code <= std::prev(after)->last;
}

const Shorthand& Digits() {
  static const Shorthand digits = MakeDigits();
  return digits;
}

const Shorthand& WordCharacters() {
  static const Shorthand words = MakeWordCharacters();
  return words;
}

const Shorthand& Spaces() {
  static const Shorthand spaces = MakeSpaces();
  return spaces;
}

std::vector<ByteSequence> Utf8Sequences(const CharSet& set) {
  std::vector<ByteSequence> out;
  for (const CodeRange& range : set.ranges()) {
    uint32_t first = range.first;
    for (const Length& length : kLengths) {
      if (first > length.last || first > range.last) continue;
      const uint32_t last = std::min(range.last, length.last);
      Cut(first, last, length.size, out);
      first = last + 1;
      if (first > range.last) break;
    }
  }
  return out;
}

}  // namespace baton::grammar
