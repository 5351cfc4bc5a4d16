// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/wire.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::grammar {

absl::StatusOr<Source> SourceFromWire(const v1::Constraint& wire) {
  std::vector<const char*> set;
  Source source;
  if (wire.json() != v1::Constraint::JSON_TEXT_UNSPECIFIED) {
    const bool value = wire.json() == v1::Constraint::JSON_TEXT_VALUE;
    if (!value && wire.json() != v1::Constraint::JSON_TEXT_OBJECT) {
      return absl::InvalidArgumentError(
          absl::StrCat("json is ", static_cast<int>(wire.json()), "; it must be 1 or 2"));
    }
    source.kind = value ? SourceKind::kAnyValue : SourceKind::kAnyObject;
    set.push_back("json");
  }
  if (wire.has_json_schema()) {
    source.kind = SourceKind::kSchema;
    source.text = wire.json_schema();
    set.push_back("json_schema");
  }
  if (wire.has_regex()) {
    source.kind = SourceKind::kRegex;
    source.text = wire.regex();
    set.push_back("regex");
  }
  if (!wire.choices().empty()) {
    source.kind = SourceKind::kChoices;
    source.choices.assign(wire.choices().begin(), wire.choices().end());
    set.push_back("choices");
  }
  if (set.size() == 1) return source;
  const char* rule = "exactly one of json, json_schema, regex and choices is needed";
  if (set.empty()) return absl::InvalidArgumentError(absl::StrCat("is empty; ", rule));
  return absl::InvalidArgumentError(
      absl::StrCat("has ", absl::StrJoin(set, " and "), " set; ", rule));
}

const char* FieldOf(SourceKind kind) {
  switch (kind) {
    case SourceKind::kSchema:
      return "json_schema";
    case SourceKind::kRegex:
      return "regex";
    case SourceKind::kChoices:
      return "choices";
    default:
      return "json";
  }
}

}  // namespace baton::grammar
