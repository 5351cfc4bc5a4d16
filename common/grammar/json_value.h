// SPDX-License-Identifier: Apache-2.0
// A JSON document as a tree that keeps the order of members.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::grammar {

struct JsonValue {
  enum class Type : uint8_t { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };

  Type type = Type::kNull;
  bool boolean = false;
  double number = 0;      // of kInteger, too
  std::string text = {};  // kString: decoded; numbers: as written
  std::vector<JsonValue> items = {};
  std::vector<std::pair<std::string, JsonValue>> members = {};  // names are unique

  bool is_object() const { return type == Type::kObject; }
  bool is_array() const { return type == Type::kArray; }
  bool is_string() const { return type == Type::kString; }
  bool is_boolean() const { return type == Type::kBoolean; }
  bool is_number() const { return type == Type::kInteger || type == Type::kNumber; }
  // Null where there is none.
  const JsonValue* Find(std::string_view name) const;
};

// As JSON Schema compares: numbers by value, members in any order.
bool SameJson(const JsonValue& a, const JsonValue& b);

struct JsonLimits {
  size_t bytes = 256 << 10;
  uint32_t depth = 64;
};

// INVALID_ARGUMENT says where the text ends to be JSON, or which limit it exceeds.
absl::StatusOr<JsonValue> ParseJson(std::string_view text, const JsonLimits& limits = {});

}  // namespace baton::grammar
