// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/source.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/probe.h"
#include "common/grammar/regex.h"

namespace baton::grammar {
namespace {

absl::StatusOr<RuleSet> RulesOfChoices(const std::vector<std::string>& choices) {
  if (choices.empty() || choices.size() > kMostChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", choices.size(), " texts; it must have 1 to ", kMostChoices));
  }
  absl::flat_hash_set<std::string_view> seen;
  std::vector<ExprPtr> texts;
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string& choice = choices[i];
    if (choice.empty() || choice.size() > kMostChoiceBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "text ", i, " has ", choice.size(), " bytes; it must have 1 to ", kMostChoiceBytes));
    }
    if (!IsValidUtf8(choice)) {
      return absl::InvalidArgumentError(absl::StrCat("text ", i, " is no valid UTF-8"));
    }
    if (!seen.insert(choice).second) {
      return absl::InvalidArgumentError(absl::StrCat("text ", i, " stands there twice"));
    }
    texts.push_back(Text(choice));
  }
  return RuleSet{{Choice(std::move(texts))}, 0};
}

absl::StatusOr<RuleSet> RulesOf(const Source& source) {
  switch (source.kind) {
    case SourceKind::kAnyObject:
      return RulesOfAnyObject();
    case SourceKind::kAnyValue:
      return RulesOfAnyValue();
    case SourceKind::kSchema:
      return RulesOfSchema(source.text);
    case SourceKind::kRegex: {
      BATON_ASSIGN_OR_RETURN(const Regex regex, ParseRegex(source.text));
      return RuleSet{{regex.expr}, 0};
    }
    case SourceKind::kChoices:
      return RulesOfChoices(source.choices);
  }
  return absl::InvalidArgumentError("unknown kind of constraint");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Program>> Compile(const Source& source) {
  BATON_ASSIGN_OR_RETURN(const RuleSet rules, RulesOf(source));
  BATON_ASSIGN_OR_RETURN(Program program, MakeProgram(rules));
  int64_t budget = kProbeBudget;
  BATON_RETURN_IF_ERROR(Probe(program, &budget));
  return std::make_shared<const Program>(std::move(program));
}

}  // namespace baton::grammar
