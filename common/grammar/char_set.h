// SPDX-License-Identifier: Apache-2.0
// Sets of Unicode characters, and the bytes that spell them.
#pragma once

#include <cstdint>
#include <vector>

namespace baton::grammar {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

struct CodeRange {
  uint32_t first = 0, last = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

// A set of Unicode scalar values: surrogates are never in it. Ranges are
// disjoint, sorted, and not adjacent but for the gap of the surrogates.
class CharSet final {
 public:
  CharSet() = default;
  // Any ranges, in any order.
  static CharSet Of(const std::vector<CodeRange>& ranges);
  static CharSet All();

  CharSet Union(const CharSet& other) const;
  CharSet Minus(const CharSet& other) const;
  CharSet Complement() const { return All().Minus(*this); }
  bool Contains(uint32_t code) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  friend bool operator==(const CharSet&, const CharSet&) = default;

 private:
  std::vector<CodeRange> ranges_;
};

// What \d, \w and \s stand for differs between readers: ASCII to PCRE2, Unicode
// to Python. `sure` characters belong to the class for all of them, `possible`
// ones for some.
struct Shorthand {
  CharSet sure, possible;

  // The class of the upper-case letter.
  Shorthand Negated() const { return {possible.Complement(), sure.Complement()}; }
};
// Thread-safe; the first call of each looks at all of Unicode (milliseconds).
const Shorthand& Digits();
const Shorthand& WordCharacters();
const Shorthand& Spaces();

struct ByteRange {
  uint8_t first = 0, last = 0;
};
// Bytes of characters, one range per byte.
struct ByteSequence {
  uint32_t size = 0;  // 1 to 4
  ByteRange bytes[4];
};
// The UTF-8 of every character of the set, each by exactly one sequence.
std::vector<ByteSequence> Utf8Sequences(const CharSet& set);

}  // namespace baton::grammar
