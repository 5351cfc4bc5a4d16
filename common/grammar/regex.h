// SPDX-License-Identifier: Apache-2.0
// Regular expressions: what PCRE2, ECMAScript and Python read alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/grammar/expr.h"

namespace baton::grammar {

inline constexpr size_t kMostRegexBytes = 8192;
inline constexpr uint32_t kMostRepeats = 65535;  // as in PCRE2

struct RegexOptions {
  // False: the text may have anything before and behind, unless the expression
  // begins with ^ and ends with $.
  bool anchored = true;
  // How a set of characters is written; null: as it is.
  std::function<ExprPtr(const CharSet&)> spell = nullptr;
};

struct Regex {
  ExprPtr expr;
  // Characters of the texts it matches; `most` may be kNoLimit.
  uint64_t least = 0, most = 0;
};

// Takes literals, escapes of characters (\n \t \r \f \xHH \uHHHH \x{H...}) and
// of punctuation, ., classes with ranges, \d \w \s and their complements,
// groups ((...), (?:...), (?<name>...), (?P<name>...)), alternation, and
// ? * + {n} {n,} {n,m}, which may be lazy: laziness changes no match of a whole
// text. \d, \w and \s are ASCII, \D, \W and \S are what neither ASCII nor
// Unicode counts to them; the dot takes no line break of any reader. So every
// text that matches here matches for all three.
// ^ and $ stand at the ends of the whole expression or of its alternatives.
//
// INVALID_ARGUMENT with what is wrong or not supported, and its byte:
// "lookahead (?=...) at byte 12 is not supported".
absl::StatusOr<Regex> ParseRegex(std::string_view pattern, const RegexOptions& options = {});

}  // namespace baton::grammar
