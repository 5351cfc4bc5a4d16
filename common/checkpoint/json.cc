// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/json.h"

#include <cmath>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::checkpoint {
namespace {

// A tokenizer.json of 150,000 tokens and as many merges has 0.6 million values.
constexpr size_t kMaxValues = 4'000'000;
constexpr size_t kMaxDepth = 64;

// Looks through a text before it becomes a tree, so that no tree grows beyond
// the limits.
class LimitChecker {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  const std::string& error() const { return error_; }

  bool null() { return Value(); }
  bool boolean(bool /*value*/) { return Value(); }
  bool number_integer(number_integer_t /*value*/) { return Value(); }
  bool number_unsigned(number_unsigned_t /*value*/) { return Value(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) { return Value(); }
  bool string(string_t& /*value*/) { return Value(); }
  bool binary(binary_t& /*value*/) { return Value(); }
  bool start_object(size_t /*elements*/) { return Open(); }
  bool start_array(size_t /*elements*/) { return Open(); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(string_t& name) {
    if (keys_.back().insert(name).second) return true;
    return Fail(absl::StrCat("key \"", name.substr(0, 100), "\" stands twice"));
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) {
    return Fail(absl::StrCat("not JSON at offset ", position));
  }

 private:
  bool Value() { return ++values_ <= kMaxValues || Fail("too many values"); }
  bool Open() {
    keys_.emplace_back();
    return keys_.size() <= kMaxDepth ? Value() : Fail("nested too deep");
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }
  bool Fail(std::string why) {
    error_ = std::move(why);
    return false;
  }

  size_t values_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view text, std::string_view source) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(source), ": ", std::string(what)));
  };
  // The parser takes NUL for the end of the text and would pass what follows.
  if (text.find('\0') != std::string_view::npos) return error("NUL byte in JSON");
  LimitChecker checker;
  if (!Json::sax_parse(text.begin(), text.end(), &checker)) return error(checker.error());
  Json parsed = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return error("not a JSON object");
  return parsed;
}

const Json* JsonFields::Find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

absl::Status JsonFields::Error(const char* key, std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(source_), ": \"", key, "\" ", std::string(what)));
}

bool JsonFields::Has(const char* key) const { return Find(key) != nullptr; }

absl::StatusOr<uint32_t> JsonFields::Uint(const char* key, uint32_t low, uint32_t high,
                                          std::optional<uint32_t> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Error(key, "is missing");
  if (!value->is_number_unsigned() || value->get<uint64_t>() < low ||
      value->get<uint64_t>() > high) {
    return Error(key, absl::StrCat("must be a whole number from ", low, " to ", high));
  }
  return value->get<uint32_t>();
}

absl::StatusOr<double> JsonFields::Number(const char* key, std::optional<double> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Error(key, "is missing");
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return Error(key, "must be a number");
  }
  return value->get<double>();
}

absl::StatusOr<bool> JsonFields::Bool(const char* key, bool fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Error(key, "must be true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonFields::String(const char* key, std::string_view fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return Error(key, "must be a string");
  return value->get<std::string>();
}

}  // namespace baton::checkpoint
