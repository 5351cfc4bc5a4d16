// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/regex_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/grammar/regex.h"

namespace baton::grammar {
namespace {

Shorthand Single(uint32_t code) {
  const CharSet set = CharSet::Of({{code, code}});
  return {set, set};
}

// What follows "(?" in groups that do more than group.
struct GroupKind {
  std::string_view start, name;
};
constexpr GroupKind kOtherGroups[] = {
    {"=", "lookahead (?=...)"},     {"!", "lookahead (?!...)"},    {"<=", "lookbehind (?<=...)"},
    {"<!", "lookbehind (?<!...)"},  {">", "atomic group (?>...)"}, {"|", "branch reset (?|...)"},
    {"(", "condition (?(...)...)"}, {"#", "comment (?#...)"},      {"P=", "backreference (?P=...)"},
    {"P>", "recursion (?P>...)"},   {"R", "recursion (?R)"},       {"&", "recursion (?&...)"},
    {"C", "callout (?C)"}};

}  // namespace

void RegexReader::Fail(std::string_view what, size_t at) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(std::string(what), " at byte ", at));
}

void RegexReader::Unsupported(std::string_view what, size_t at) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat(std::string(what), " at byte ", at, " is not supported"));
}

bool RegexReader::Take(char c) {
  if (at_end() || pattern_[at_] != c) return false;
  ++at_;
  return true;
}

bool RegexReader::TakeText(std::string_view text) {
  if (!pattern_.substr(at_).starts_with(text)) return false;
  at_ += text.size();
  return true;
}

bool RegexReader::EndsAlternativeBehind() const {
  return at_ + 1 >= pattern_.size() || pattern_[at_ + 1] == '|';
}

CodeRange RegexReader::ReadCharacter() {
  const auto lead = static_cast<uint8_t>(pattern_[at_++]);
  if (lead < 0x80) return {lead, lead};
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  uint32_t code = lead & (0x3Fu >> more);
  for (int i = 0; i < more; ++i) code = code << 6 | (static_cast<uint8_t>(pattern_[at_++]) & 0x3Fu);
  return {code, code};
}

uint32_t RegexReader::ReadHex(size_t digits, size_t at) {
  uint32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (at_end() || !absl::ascii_isxdigit(static_cast<unsigned char>(peek()))) {
      Fail("incomplete escape", at);
      return 0;
    }
    const char c = absl::ascii_tolower(static_cast<unsigned char>(pattern_[at_++]));
    code = code * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return code;
}

// Behind "\x" or "\u".
uint32_t RegexReader::ReadCode(size_t escape) {
  const bool is_x = pattern_[at_ - 1] == 'x';
  uint32_t code = 0;
  if (is_x && Take('{')) {
    size_t digits = 0;
    while (absl::ascii_isxdigit(static_cast<unsigned char>(peek())) && digits < 7) {
      code = code * 16 + ReadHex(1, escape);
      ++digits;
    }
    if (digits == 0 || !Take('}')) Fail("incomplete escape", escape);
  } else {
    code = ReadHex(is_x ? 2 : 4, escape);
  }
  if (code > kLastCodePoint || (code >= 0xD800 && code <= 0xDFFF)) {
    Fail("escape of no character", escape);
  }
  return code;
}

Shorthand RegexReader::ReadEscape(bool in_class) {
  const size_t escape = at_++;
  if (at_end()) {
    Fail("\\ without a character behind it", escape);
    return {};
  }
  const char c = pattern_[at_];
  if (static_cast<uint8_t>(c) >= 0x80) return Single(ReadCharacter().first);
  ++at_;
  switch (c) {
    case 'd':
      return Digits();
    case 'D':
      return Digits().Negated();
    case 'w':
      return WordCharacters();
    case 'W':
      return WordCharacters().Negated();
    case 's':
      return Spaces();
    case 'S':
      return Spaces().Negated();
    case 'n':
      return Single('\n');
    case 'r':
      return Single('\r');
    case 't':
      return Single('\t');
    case 'f':
      return Single('\f');
    case 'x':
    case 'u':
      return Single(ReadCode(escape));
    default:
      break;
  }
  if (absl::ascii_isdigit(static_cast<unsigned char>(c)) && !in_class) {
    Unsupported(absl::StrCat("backreference \\", std::string(1, c)), escape);
  } else if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
    Unsupported(absl::StrCat("\\", std::string(1, c)), escape);
  }
  return Single(static_cast<uint8_t>(c));
}

struct RegexReader::ClassItem {
  Shorthand set;
  bool single = false;
  uint32_t code = 0;
};

RegexReader::ClassItem RegexReader::ReadClassItem() {
  ClassItem item;
  if (peek() == '\\') {
    item.set = ReadEscape(/*in_class=*/true);
    const auto& ranges = item.set.sure.ranges();
    item.single = ranges.size() == 1 && ranges[0].first == ranges[0].last;
    if (item.single) item.code = ranges[0].first;
    return item;
  }
  if (peek() == '[') {
    const char behind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (behind == ':' || behind == '.' || behind == '=') Unsupported("POSIX class", at_);
  }
  item.single = true;
  item.code = ReadCharacter().first;
  item.set = Single(item.code);
  return item;
}

CharSet RegexReader::ReadClass() {
  const size_t start = at_++;
  const bool negated = Take('^');
  CharSet sure, possible;
  if (peek() == ']') Unsupported("] as the first of a class (write \\])", at_);
  while (status_.ok() && !at_end() && peek() != ']') {
    const size_t at = at_;
    ClassItem item = ReadClassItem();
    const bool range = peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
    if (range && status_.ok()) {
      ++at_;
      const ClassItem last = ReadClassItem();
      if (!status_.ok()) break;
      if (!item.single || !last.single) {
        Unsupported("range with a class at its end", at);
      } else if (item.code > last.code) {
        Fail("range out of order", at);
      }
      const CharSet set = CharSet::Of({{item.code, last.code}});
      item.set = {set, set};
    }
    sure = sure.Union(item.set.sure);
    possible = possible.Union(item.set.possible);
  }
  if (!Take(']')) Fail("unmatched [", start);
  return negated ? possible.Complement() : sure;
}

bool RegexReader::TakeCounts(uint32_t* min, uint32_t* max) {
  if (peek() != '{') return false;
  const size_t start = at_++;
  const auto read = [&](uint32_t* value) {
    const size_t begin = at_;
    uint64_t number = 0;
    while (absl::ascii_isdigit(static_cast<unsigned char>(peek()))) {
      number = std::min<uint64_t>(number * 10 + static_cast<uint64_t>(pattern_[at_++] - '0'),
                                  uint64_t{kMostRepeats} + 1);
    }
    *value = static_cast<uint32_t>(number);
    return at_ > begin;
  };
  bool good = read(min);
  *max = *min;
  if (good && Take(',') && !read(max)) *max = kNoLimit;
  good = good && Take('}');
  if (!good) {
    Unsupported("{ that is no repeat (write \\{)", start);
  } else if (*min > kMostRepeats || (*max != kNoLimit && *max > kMostRepeats)) {
    Fail(absl::StrCat("repeat of more than ", kMostRepeats), start);
  } else if (*min > *max) {
    Fail("repeat with its numbers out of order", start);
  }
  return true;
}

void RegexReader::SkipGroupName(size_t group) {
  if (peek() == '*') return Unsupported("verb (*...)", group);
  if (!Take('?')) return;
  if (Take(':')) return;
  for (const GroupKind& kind : kOtherGroups) {
    if (pattern_.substr(at_).starts_with(kind.start)) return Unsupported(kind.name, group);
  }
  const bool named = TakeText("P<") || TakeText("<");
  const size_t begin = at_;
  while (absl::ascii_isalnum(static_cast<unsigned char>(peek())) || peek() == '_') ++at_;
  if (!named) return Unsupported("option (?...)", group);
  if (at_ == begin || !Take('>')) Fail("incomplete name of a group", group);
}

}  // namespace baton::grammar
