// SPDX-License-Identifier: Apache-2.0
// Grammars as trees: what the front ends build and the program is made from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/char_set.h"

namespace baton::grammar {

struct Expr;
// Trees may share parts; null never occurs.
using ExprPtr = std::shared_ptr<const Expr>;

inline constexpr uint32_t kNoLimit = UINT32_MAX;

enum class ExprKind : uint8_t {
  kNothing,   // no text at all
  kText,      // `text`, maybe empty
  kClass,     // one character of `set`
  kSequence,  // `parts` one after the other
  kChoice,    // one of `parts`
  kRepeat,    // parts[0], `min` to `max` times
  kRule,      // what the grammar's rule of that number matches
};

struct Expr {
  ExprKind kind = ExprKind::kNothing;
  std::string text = {};
  CharSet set = {};
  std::vector<ExprPtr> parts = {};
  uint32_t min = 0, max = 0;  // max may be kNoLimit
  uint32_t rule = 0;
};

ExprPtr Nothing();
ExprPtr Text(std::string_view text);
ExprPtr Class(CharSet set);
ExprPtr Sequence(std::vector<ExprPtr> parts);
ExprPtr Choice(std::vector<ExprPtr> parts);
// REQUIRES: min <= max.
ExprPtr Repeat(ExprPtr part, uint32_t min, uint32_t max);
ExprPtr Rule(uint32_t rule);
inline ExprPtr Optional(ExprPtr part) { return Repeat(std::move(part), 0, 1); }

// Rules may call one another, but no rule may reach itself without matching a
// byte before.
struct RuleSet {
  std::vector<ExprPtr> rules;
  uint32_t start = 0;
};

}  // namespace baton::grammar
