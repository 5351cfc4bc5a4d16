// SPDX-License-Identifier: Apache-2.0
#include "client/cli/constraint_json.h"

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

absl::Status Wrong(const std::string& key, const char* wanted) {
  return absl::InvalidArgumentError(absl::StrCat("constraint.", key, " must be ", wanted));
}

absl::Status SetKey(const std::string& key, const OrderedJson& value, Constraint* constraint) {
  if (key == "json") {
    if (!value.is_string()) return Wrong(key, "\"object\" or \"value\"");
    constraint->json = value.get<std::string>();
  } else if (key == "json_schema") {
    // A schema may be written as what it is: the order of its members is kept.
    constraint->json_schema = value.is_string() ? value.get<std::string>() : value.dump();
  } else if (key == "regex") {
    if (!value.is_string()) return Wrong(key, "a string");
    constraint->regex = value.get<std::string>();
  } else if (key == "choices") {
    if (!value.is_array()) return Wrong(key, "a list of strings");
    for (const OrderedJson& choice : value) {
      if (!choice.is_string()) return Wrong(key, "a list of strings");
      constraint->choices.push_back(choice.get<std::string>());
    }
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("constraint has the unknown key \"", key,
                     "\"; it may have one of json, json_schema, regex and choices"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Constraint> ParseConstraint(const std::string& json) {
  const OrderedJson object = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("constraint must be an object");
  Constraint constraint;
  for (const auto& [key, value] : object.items()) {
    BATON_RETURN_IF_ERROR(SetKey(key, value, &constraint));
  }
  return constraint;
}

}  // namespace baton::cli
