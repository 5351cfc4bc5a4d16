// SPDX-License-Identifier: Apache-2.0
// JSON as it is written in answers.
//
// Text is compact: no white space but at most one space behind each comma and
// colon between values. Characters of free strings stand as they are or as any
// of JSON's escapes (no surrogates); those that a schema asks for one by one
// have one spelling: as they are where JSON allows, else the short escape, else
// \u00xx. Numbers have at most 16 digits before and behind the point, and two
// in the exponent.
#pragma once

#include "common/grammar/expr.h"
#include "common/grammar/json_value.h"

namespace baton::grammar {

ExprPtr JsonComma();
ExprPtr JsonColon();

// Any character of a string.
ExprPtr JsonCharacter();
// One of the set, in its one spelling.
ExprPtr JsonCharacter(const CharSet& set);
// A string of `characters`.
ExprPtr JsonString(ExprPtr characters);
// A string by its decoded text, in its one spelling.
ExprPtr JsonLiteral(std::string_view text);
// A value as it is.
ExprPtr JsonLiteral(const JsonValue& value);
// A member's name, other than these; spelled without escapes, so that no
// spelling of these slips through.
ExprPtr JsonNameOtherThan(std::vector<std::string> names);

ExprPtr JsonInteger();
ExprPtr JsonNumber();

// {...} and [...] around parts that are there already.
ExprPtr JsonBraces(ExprPtr members);
ExprPtr JsonBrackets(ExprPtr items);
// `item`s with commas between them, `min` to `max` of them.
ExprPtr JsonList(const ExprPtr& item, uint32_t min, uint32_t max);

// Rules for any value and any object.
struct AnyJson {
  ExprPtr value, object, array;
};
// Appends them to `rules`.
AnyJson AddAnyJson(RuleSet& rules);

}  // namespace baton::grammar
