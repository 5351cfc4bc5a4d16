// SPDX-License-Identifier: Apache-2.0
// JSON that nobody vouches for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::checkpoint {

using Json = nlohmann::json;

// Parses an object. INVALID_ARGUMENT, with `source` and the offset, for
// anything that is not JSON in valid UTF-8, a key that stands twice, or more
// nesting or values than a checkpoint's files can need. Throws nothing.
absl::StatusOr<Json> ParseJsonObject(std::string_view text, std::string_view source);

// Reads fields of one object; errors name the source and the field.
class JsonFields {
 public:
  // Both must outlive the object; `object` must be one.
  JsonFields(const Json& object, std::string_view source) : object_(object), source_(source) {}

  // True when the field is there and not null.
  bool Has(const char* key) const;

  // A value in [low, high]; `fallback` when absent, an error without one.
  absl::StatusOr<uint32_t> Uint(const char* key, uint32_t low, uint32_t high,
                                std::optional<uint32_t> fallback = std::nullopt) const;
  absl::StatusOr<double> Number(const char* key, std::optional<double> fallback) const;
  absl::StatusOr<bool> Bool(const char* key, bool fallback) const;
  absl::StatusOr<std::string> String(const char* key, std::string_view fallback) const;

  std::string_view source() const { return source_; }
  const Json& object() const { return object_; }

 private:
  const Json* Find(const char* key) const;
  absl::Status Error(const char* key, std::string_view what) const;

  const Json& object_;
  std::string_view source_;
};

}  // namespace baton::checkpoint
