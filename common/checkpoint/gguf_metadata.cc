// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/gguf.h"

namespace baton::checkpoint {

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::Status GgufMetadata::Error(std::string_view key, std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_, ": ", std::string(key), " ", std::string(what)));
}

absl::StatusOr<uint32_t> GgufMetadata::Uint(std::string_view key, uint32_t low, uint32_t high,
                                            std::optional<uint32_t> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Error(key, "is missing");
  uint64_t number = UINT64_MAX;
  if (const auto* whole = std::get_if<uint64_t>(value)) number = *whole;
  if (const auto* whole = std::get_if<int64_t>(value); whole != nullptr && *whole >= 0) {
    number = static_cast<uint64_t>(*whole);
  }
  if (number < low || number > high) {
    return Error(key, absl::StrCat("must be a whole number from ", low, " to ", high));
  }
  return static_cast<uint32_t>(number);
}

absl::StatusOr<double> GgufMetadata::Number(std::string_view key,
                                            std::optional<double> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Error(key, "is missing");
  const auto* number = std::get_if<double>(value);
  if (number == nullptr || !std::isfinite(*number)) return Error(key, "must be a number");
  return *number;
}

absl::StatusOr<bool> GgufMetadata::Bool(std::string_view key, bool fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return fallback;
  const auto* flag = std::get_if<bool>(value);
  if (flag == nullptr) return Error(key, "must be a bool");
  return *flag;
}

absl::StatusOr<std::string_view> GgufMetadata::String(
    std::string_view key, std::optional<std::string_view> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Error(key, "is missing");
  const auto* text = std::get_if<std::string_view>(value);
  if (text == nullptr) return Error(key, "must be a string");
  return *text;
}

absl::StatusOr<const std::vector<std::string_view>*> GgufMetadata::Strings(
    std::string_view key) const {
  const GgufValue* value = Find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<std::string_view>>(value);
  if (value != nullptr && list == nullptr) return Error(key, "must be an array of strings");
  return list;
}

absl::StatusOr<const std::vector<double>*> GgufMetadata::Numbers(std::string_view key) const {
  const GgufValue* value = Find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<double>>(value);
  if (value != nullptr && list == nullptr) return Error(key, "must be an array of floats");
  return list;
}

absl::StatusOr<const std::vector<int64_t>*> GgufMetadata::Ints(std::string_view key) const {
  const GgufValue* value = Find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  if (value != nullptr && list == nullptr) {
    return Error(key, "must be an array of signed integers");
  }
  return list;
}

}  // namespace baton::checkpoint
