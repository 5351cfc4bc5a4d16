// SPDX-License-Identifier: Apache-2.0
// What the words of a JSON Schema mean to this compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/grammar/json_value.h"

namespace baton::grammar {

// Types of JSON as bits. Every integer is a number, too.
enum TypeBits : uint32_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kNumberType = 8 | kIntegerType,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127,
};

// 0 for a word that is none.
uint32_t TypeNamed(std::string_view name);
uint32_t TypeOf(const JsonValue& value);

enum class KeywordUse : uint8_t {
  kUnknown,
  kAnnotation,  // says nothing about validity, or belongs to the root alone
  kCombines,    // $ref, allOf, anyOf, oneOf, enum, const, type
  kConstrains,  // values of one type
};
struct Keyword {
  KeywordUse use = KeywordUse::kUnknown;
  uint32_t types = 0;  // that it constrains
};
Keyword KeywordNamed(std::string_view name);

// A place in a schema, as a JSON pointer in a URI: "#/properties/a~1b".
std::string PointerTo(std::string_view parent, std::string_view member);
std::string PointerTo(std::string_view parent, size_t index);

// "`what` at `pointer`".
absl::Status SchemaError(std::string_view what, std::string_view pointer);

// The types of keyword "type", or `otherwise` without it.
absl::StatusOr<uint32_t> TypesOf(const JsonValue& schema, std::string_view pointer,
                                 uint32_t otherwise);

// Types that the words of a schema without "type" are about; 0: of none.
uint32_t ImpliedTypes(const JsonValue& schema);

// A count such as minItems; `otherwise` without the keyword.
absl::StatusOr<uint32_t> CountOf(const JsonValue& schema, std::string_view keyword,
                                 std::string_view pointer, uint32_t otherwise);

// What both demand. Only where that is plainly one schema: a keyword of one
// alone, equal ones, types that are met, names that are united, bounds of which
// the closer one is taken; else INVALID_ARGUMENT names the keyword.
absl::StatusOr<JsonValue> MergeSchemas(const JsonValue& a, const JsonValue& b,
                                       std::string_view pointer);

}  // namespace baton::grammar
