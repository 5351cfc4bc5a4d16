// SPDX-License-Identifier: Apache-2.0
#include "client/cli/constraint_flags.h"

#include "client/cli/text_source.h"
#include "common/base/status_macros.h"

namespace baton::cli {

void ConstraintFlags::Register(config::CommandLine& line) {
  line.AddChoice("Constraint", "json-mode", &json_mode_, {"off", "object", "value"},
                 "The answer is JSON: an object, or a value of any type");
  line.Add("Constraint", "json-schema", &schema_file_,
           "The answer is JSON of this schema: a file; - reads standard input");
  line.Add("Constraint", "regex", &regex_, "The whole answer matches this regular expression");
  line.Add("Constraint", "choices", &choices_,
           "The answer is this text; given several times: one of them");
}

absl::StatusOr<std::optional<Constraint>> ConstraintFlags::Read() const {
  Constraint constraint;
  if (json_mode_ != "off") constraint.json = json_mode_;
  if (schema_file_) {
    BATON_ASSIGN_OR_RETURN(constraint.json_schema, ReadText("json-schema", *schema_file_));
  }
  constraint.regex = regex_;
  constraint.choices = choices_;
  const bool given = json_mode_ != "off" || schema_file_ || regex_ || !choices_.empty();
  return given ? std::optional(std::move(constraint)) : std::nullopt;
}

absl::Status ConstraintFlags::Apply(Request* request) const {
  BATON_ASSIGN_OR_RETURN(auto constraint, Read());
  if (constraint) request->constraint = std::move(constraint);
  return absl::OkStatus();
}

}  // namespace baton::cli
