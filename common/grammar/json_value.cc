// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace baton::grammar {
namespace {

// Builds the tree from the parser's events. Returning false stops it.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add({}); }
  bool boolean(bool value) override {
    return Add({.type = JsonValue::Type::kBoolean, .boolean = value});
  }
  bool number_integer(number_integer_t value) override {
    return AddInteger(static_cast<double>(value), absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return AddInteger(static_cast<double>(value), absl::StrCat(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return Add({.type = JsonValue::Type::kNumber, .number = value, .text = text});
  }
  bool string(string_t& value) override {
    return Add({.type = JsonValue::Type::kString, .text = std::move(value)});
  }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return Open(JsonValue::Type::kObject); }
  bool start_array(std::size_t /*size*/) override { return Open(JsonValue::Type::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (!open_.back().names.insert(name).second) {
      problem_ = absl::StrCat("has the member \"", name, "\" twice");
      return false;
    }
    open_.back().value.members.emplace_back(std::move(name), JsonValue());
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    problem_ = absl::StrCat("is no JSON: error at byte ", position);
    return false;
  }

  const std::string& problem() const { return problem_; }
  JsonValue TakeRoot() { return std::move(root_); }

 private:
  struct Level {
    JsonValue value;
    absl::flat_hash_set<std::string> names;
  };

  bool AddInteger(double value, std::string text) {
    return Add({.type = JsonValue::Type::kInteger, .number = value, .text = std::move(text)});
  }
  bool Add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (JsonValue& parent = open_.back().value; parent.is_array()) {
      parent.items.push_back(std::move(value));
    } else {
      parent.members.back().second = std::move(value);
    }
    return true;
  }
  bool Open(JsonValue::Type type) {
    if (open_.size() >= limits_.depth) {
      problem_ = absl::StrCat("is nested deeper than ", limits_.depth);
      return false;
    }
    open_.emplace_back().value.type = type;
    return true;
  }
  bool Close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }

  const JsonLimits limits_;
  JsonValue root_;
  std::vector<Level> open_;
  std::string problem_;
};

}  // namespace

const JsonValue* JsonValue::Find(std::string_view name) const {
  for (const auto& member : members) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

bool SameJson(const JsonValue& a, const JsonValue& b) {
  if (a.is_number() && b.is_number()) return a.number == b.number;
  if (a.type != b.type || a.boolean != b.boolean || a.text != b.text) return false;
  if (!std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), SameJson)) {
    return false;
  }
  return a.members.size() == b.members.size() &&
         std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
           const JsonValue* other = b.Find(member.first);
           return other != nullptr && SameJson(member.second, *other);
         });
}

absl::StatusOr<JsonValue> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", text.size(), " bytes; the limit is ", limits.bytes));
  }
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError("is no valid UTF-8");
  TreeBuilder builder(limits);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(builder.problem().empty() ? "is no JSON" : builder.problem());
  }
  return builder.TakeRoot();
}

}  // namespace baton::grammar
