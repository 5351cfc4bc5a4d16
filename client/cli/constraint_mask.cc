// SPDX-License-Identifier: Apache-2.0
#include "client/cli/constraint_mask.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/grammar/matcher.h"
#include "common/grammar/source.h"

namespace baton::cli {
namespace {

using grammar::SourceKind;

// A constraint by the flag that it comes from.
struct Flag {
  const char* name;
  grammar::Source source;
};

absl::StatusOr<Flag> FlagOf(const Constraint& constraint) {
  std::vector<Flag> given;
  if (!constraint.json.empty()) {
    const bool value = constraint.json == "value";
    given.push_back(
        {"json-mode", {value ? SourceKind::kAnyValue : SourceKind::kAnyObject, "", {}}});
  }
  if (constraint.json_schema) {
    given.push_back({"json-schema", {SourceKind::kSchema, *constraint.json_schema, {}}});
  }
  if (constraint.regex) given.push_back({"regex", {SourceKind::kRegex, *constraint.regex, {}}});
  if (!constraint.choices.empty()) {
    given.push_back({"choices", {SourceKind::kChoices, "", constraint.choices}});
  }
  if (given.size() == 1) return given[0];
  const std::string flags = absl::StrJoin(given, " and ", [](std::string* out, const Flag& flag) {
    absl::StrAppend(out, "--", flag.name);
  });
  return absl::InvalidArgumentError(
      absl::StrCat(given.empty() ? "no constraint" : flags,
                   ": exactly one of --json-mode, --json-schema, --regex and --choices is needed"));
}

absl::Status Named(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

}  // namespace

absl::StatusOr<grammar::TokenMask> AllowedNext(const Constraint& constraint,
                                               const tokenizer::Tokenizer& tokenizer,
                                               std::span<const TokenId> outputs,
                                               std::span<const TokenId> end_tokens) {
  BATON_ASSIGN_OR_RETURN(const Flag flag, FlagOf(constraint));
  auto program = grammar::Compile(flag.source);
  if (!program.ok()) return Named(flag.name, program.status());
  grammar::Matcher matcher(*std::move(program), grammar::TokenTrie::Of(tokenizer));
  grammar::Cursor cursor;
  grammar::TokenMask mask;
  const absl::Status status =
      matcher.FillMask({.outputs = outputs, .end_tokens = end_tokens}, &cursor, &mask);
  if (!status.ok()) return Named(flag.name, status);
  return mask;
}

}  // namespace baton::cli
