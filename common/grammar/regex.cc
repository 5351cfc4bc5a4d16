// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/grammar/regex_reader.h"

namespace baton::grammar {
namespace {

constexpr int kMostGroups = 64;  // inside of one another

struct Piece {
  ExprPtr expr = Text("");
  uint64_t least = 0, most = 0;
};

uint64_t PlusMost(uint64_t a, uint64_t b) {
  return std::min<uint64_t>(a == kNoLimit || b == kNoLimit ? kNoLimit : a + b, kNoLimit);
}

uint64_t TimesMost(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return 0;
  return a == kNoLimit || b == kNoLimit ? kNoLimit : std::min<uint64_t>(a * b, kNoLimit);
}

// Recursive descent. Errors are kept in `status_`; what is returned then is void.
class Parser {
 public:
  Parser(std::string_view pattern, const RegexOptions& options)
      : reader_(pattern), options_(options) {}

  absl::StatusOr<Regex> Parse() {
    const Piece whole = ParseChoice(/*depth=*/0);
    if (status().ok() && !reader_.at_end()) reader_.Fail("unmatched )", reader_.at());
    BATON_RETURN_IF_ERROR(status());
    return Regex{whole.expr, whole.least, whole.most};
  }

 private:
  const absl::Status& status() const { return reader_.status(); }

  Piece ParseChoice(int depth) {
    std::vector<ExprPtr> choices;
    uint64_t least = UINT64_MAX, most = 0;
    do {
      const Piece piece = ParseAlternative(depth);
      choices.push_back(piece.expr);
      least = std::min(least, piece.least);
      most = std::max(most, piece.most);
    } while (status().ok() && reader_.Take('|'));
    return {Choice(std::move(choices)), least, most};
  }

  Piece ParseAlternative(int depth) {
    const bool outermost = depth == 0;
    std::vector<ExprPtr> parts;
    Piece piece;
    const auto add = [&](const Piece& more) {
      parts.push_back(more.expr);
      piece.least += more.least;
      piece.most = PlusMost(piece.most, more.most);
    };
    bool open_start = outermost && !options_.anchored, open_end = open_start;
    if (outermost && reader_.Take('^')) open_start = false;
    if (open_start) add(Anything());
    while (status().ok() && !reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      if (outermost && reader_.peek() == '$' && reader_.EndsAlternativeBehind()) {
        reader_.Take('$');
        open_end = false;
        break;
      }
      add(ParseRepeated(depth));
    }
    if (open_end) add(Anything());
    piece.expr = Sequence(std::move(parts));
    return piece;
  }

  Piece Anything() const { return {Repeat(Spell(CharSet::All()), 0, kNoLimit), 0, kNoLimit}; }

  ExprPtr Spell(const CharSet& set) const {
    return options_.spell ? options_.spell(set) : Class(set);
  }

  Piece ParseRepeated(int depth) {
    Piece piece = ParseAtom(depth);
    for (bool repeated = false; status().ok() && !reader_.at_end();) {
      const size_t at = reader_.at();
      uint32_t min = 0, max = kNoLimit;
      if (reader_.Take('?')) {
        max = 1;
      } else if (reader_.Take('+')) {
        min = 1;
      } else if (!reader_.Take('*') && !reader_.TakeCounts(&min, &max)) {
        break;
      }
      if (!status().ok()) break;
      if (repeated) {
        reader_.Fail("repeat of a repeat", at);
        break;
      }
      repeated = true;
      reader_.Take('?');  // lazy
      if (reader_.Take('+')) reader_.Unsupported("possessive repeat", at);
      piece = {Repeat(piece.expr, min, max), piece.least * min, TimesMost(piece.most, max)};
      if (piece.least > kNoLimit) piece.least = kNoLimit;
    }
    return piece;
  }

  Piece ParseAtom(int depth) {
    const size_t at = reader_.at();
    switch (reader_.peek()) {
      case '(':
        return ParseGroup(depth);
      case '[':
        return OfSet(reader_.ReadClass());
      case '.':
        reader_.Take('.');
        return OfSet(
            CharSet::Of({{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}).Complement());
      case '\\':
        return OfSet(reader_.ReadEscape(/*in_class=*/false).sure);
      case '^':
      case '$':
        reader_.Unsupported(
            absl::StrCat(std::string(1, reader_.peek()), " inside of an expression"), at);
        return {};
      case '*':
      case '+':
      case '?':
        reader_.Fail("nothing to repeat", at);
        return {};
      default:
        return OfSet(CharSet::Of({reader_.ReadCharacter()}));
    }
  }

  Piece OfSet(const CharSet& set) const { return {Spell(set), 1, 1}; }

  Piece ParseGroup(int depth) {
    const size_t at = reader_.at();
    reader_.Take('(');
    reader_.SkipGroupName(at);
    if (depth + 1 > kMostGroups) {
      reader_.Fail(absl::StrCat("groups more than ", kMostGroups, " deep"), at);
    }
    if (!status().ok()) return {};
    Piece piece = ParseChoice(depth + 1);
    if (status().ok() && !reader_.Take(')')) reader_.Fail("unmatched (", at);
    return piece;
  }

  RegexReader reader_;
  const RegexOptions& options_;
};

}  // namespace

absl::StatusOr<Regex> ParseRegex(std::string_view pattern, const RegexOptions& options) {
  if (pattern.size() > kMostRegexBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", pattern.size(), " bytes; the limit is ", kMostRegexBytes));
  }
  if (!IsValidUtf8(pattern)) return absl::InvalidArgumentError("is no valid UTF-8");
  return Parser(pattern, options).Parse();
}

}  // namespace baton::grammar
