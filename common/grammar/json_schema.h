// SPDX-License-Identifier: Apache-2.0
// JSON Schemas as grammars.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/grammar/expr.h"

namespace baton::grammar {

// Texts of JSON (see json_text.h for how it is written) that are valid by
// `schema`, draft 2020-12. Every text of the grammar is valid; of valid ones
// the grammar has those that docs/decoding.md describes: properties in the
// order of the schema, others only where additionalProperties is given or no
// properties are.
//
// INVALID_ARGUMENT names what is wrong or not supported and where, as a JSON
// pointer: `"not" at #/properties/name is not supported`.
absl::StatusOr<RuleSet> RulesOfSchema(std::string_view schema);

// Any object or any value.
RuleSet RulesOfAnyObject();
RuleSet RulesOfAnyValue();

}  // namespace baton::grammar
