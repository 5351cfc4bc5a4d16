// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/schema_compiler.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/schema_keywords.h"

namespace baton::grammar {
namespace {

constexpr int kMostNesting = 128;  // schemas inside of one another, through references as well
constexpr int kMostWork = 5000;    // schemas looked at
constexpr size_t kMostRules = 1024;

bool Combines(const JsonValue& schema, std::string_view without) {
  return std::any_of(schema.members.begin(), schema.members.end(), [&](const auto& member) {
    return member.first != without && KeywordNamed(member.first).use != KeywordUse::kAnnotation;
  });
}

JsonValue Without(const JsonValue& schema, std::string_view keyword) {
  JsonValue rest{.type = JsonValue::Type::kObject};
  for (const auto& member : schema.members) {
    if (member.first != keyword && KeywordNamed(member.first).use != KeywordUse::kAnnotation) {
      rest.members.push_back(member);
    }
  }
  return rest;
}

}  // namespace

absl::StatusOr<RuleSet> SchemaCompiler::Compile() {
  rules_.rules.push_back(Nothing());
  by_pointer_["#"] = 0;
  rules_.start = 0;
  BATON_ASSIGN_OR_RETURN(ExprPtr root, CompileSchema(root_, "#"));
  rules_.rules[0] = std::move(root);
  return std::move(rules_);
}

SchemaCompiler::Result SchemaCompiler::CompileSchema(const JsonValue& schema,
                                                     const std::string& pointer) {
  if (schema.is_boolean()) return schema.boolean ? AnyValue() : Nothing();
  if (!schema.is_object()) return SchemaError("neither an object nor a boolean", pointer);
  if (depth_ >= kMostNesting) {
    return SchemaError(absl::StrCat("schemas nested deeper than ", kMostNesting), pointer);
  }
  if (++work_ > kMostWork) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it unfolds to more than ", kMostWork, " schemas"));
  }
  ++depth_;
  Result result = CompileObjectForm(schema, pointer);
  --depth_;
  return result;
}

SchemaCompiler::Result SchemaCompiler::CompileObjectForm(const JsonValue& schema,
                                                         const std::string& pointer) {
  BATON_RETURN_IF_ERROR(CheckKeywords(schema, pointer));
  if (schema.Find("$ref") != nullptr) return CompileReference(schema, pointer);
  if (schema.Find("allOf") != nullptr) return CompileAllOf(schema, pointer);
  if (schema.Find("anyOf") != nullptr) return CompileAnyOf(schema, "anyOf", pointer);
  if (schema.Find("oneOf") != nullptr) return CompileAnyOf(schema, "oneOf", pointer);
  if (schema.Find("enum") != nullptr || schema.Find("const") != nullptr) {
    return CompileEnum(schema, pointer);
  }
  return CompileTypes(schema, pointer);
}

absl::Status SchemaCompiler::CheckKeywords(const JsonValue& schema,
                                           const std::string& pointer) const {
  for (const auto& member : schema.members) {
    if (KeywordNamed(member.first).use == KeywordUse::kUnknown) {
      return absl::InvalidArgumentError(
          absl::StrCat("keyword \"", member.first, "\" at ", pointer, " is not supported"));
    }
  }
  const JsonValue* id = schema.Find("$id");
  if (id != nullptr && &schema != &root_) {
    return absl::InvalidArgumentError(
        absl::StrCat("keyword \"$id\" at ", pointer, " is supported at the root alone"));
  }
  return absl::OkStatus();
}

SchemaCompiler::Result SchemaCompiler::CompileReference(const JsonValue& schema,
                                                        const std::string& pointer) {
  const JsonValue& reference = *schema.Find("$ref");
  if (!reference.is_string()) return SchemaError("\"$ref\" that is no string", pointer);
  if (!Combines(schema, "$ref")) {
    BATON_ASSIGN_OR_RETURN(const uint32_t rule, RuleOf(reference.text, pointer));
    return Rule(rule);
  }
  BATON_ASSIGN_OR_RETURN(const JsonValue* target, Resolve(reference.text, pointer));
  BATON_ASSIGN_OR_RETURN(const JsonValue merged,
                         MergeSchemas(*target, Without(schema, "$ref"), pointer));
  return CompileSchema(merged, pointer);
}

absl::StatusOr<uint32_t> SchemaCompiler::RuleOf(const std::string& reference,
                                                const std::string& pointer) {
  if (const auto known = by_pointer_.find(reference); known != by_pointer_.end()) {
    return known->second;
  }
  BATON_ASSIGN_OR_RETURN(const JsonValue* target, Resolve(reference, pointer));
  if (rules_.rules.size() >= kMostRules) {
    return absl::ResourceExhaustedError(absl::StrCat("more than ", kMostRules, " references"));
  }
  const auto rule = static_cast<uint32_t>(rules_.rules.size());
  rules_.rules.push_back(Nothing());
  by_pointer_[reference] = rule;
  BATON_ASSIGN_OR_RETURN(ExprPtr body, CompileSchema(*target, reference));
  rules_.rules[rule] = std::move(body);
  return rule;
}

absl::StatusOr<const JsonValue*> SchemaCompiler::Resolve(const std::string& reference,
                                                         const std::string& pointer) const {
  const auto fail = [&](std::string_view why) {
    return SchemaError(absl::StrCat("\"$ref\" to \"", reference, "\", ", std::string(why), ","),
                       pointer);
  };
  if (!reference.starts_with('#')) return fail("which is outside of the schema");
  const JsonValue* at = &root_;
  std::string_view rest = std::string_view(reference).substr(1);
  if (!rest.empty() && rest[0] != '/') return fail("which is no JSON pointer");
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view step = rest.substr(0, rest.find('/'));
    rest.remove_prefix(step.size());
    const std::string name =
        absl::StrReplaceAll(absl::StrReplaceAll(std::string(step), {{"~1", "/"}}), {{"~0", "~"}});
    const JsonValue* next = at->Find(name);
    if (at->is_array()) {
      size_t index = 0;
      const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
      const bool good = read.ec == std::errc() && read.ptr == name.data() + name.size();
      next = good && index < at->items.size() ? &at->items[index] : nullptr;
    }
    if (next == nullptr) return fail("which does not exist");
    at = next;
  }
  return at;
}

SchemaCompiler::Result SchemaCompiler::CompileAllOf(const JsonValue& schema,
                                                    const std::string& pointer) {
  const JsonValue& all = *schema.Find("allOf");
  if (!all.is_array() || all.items.empty()) {
    return SchemaError("\"allOf\" that is no list of schemas", pointer);
  }
  JsonValue merged = Without(schema, "allOf");
  for (size_t i = 0; i < all.items.size(); ++i) {
    const std::string part_pointer = PointerTo(PointerTo(pointer, "allOf"), i);
    const JsonValue* part = &all.items[i];
    for (int followed = 0; followed < kMostNesting; ++followed) {
      const JsonValue* reference = part->Find("$ref");
      if (reference == nullptr || Combines(*part, "$ref") || !reference->is_string()) break;
      BATON_ASSIGN_OR_RETURN(part, Resolve(reference->text, part_pointer));
    }
    if (part->is_object()) BATON_RETURN_IF_ERROR(CheckKeywords(*part, part_pointer));
    if ((work_ += 1 + static_cast<int>(merged.members.size())) > kMostWork) {
      return absl::ResourceExhaustedError(
          absl::StrCat("it unfolds to more than ", kMostWork, " schemas"));
    }
    BATON_ASSIGN_OR_RETURN(merged, MergeSchemas(merged, *part, part_pointer));
  }
  return CompileSchema(merged, pointer);
}

SchemaCompiler::Result SchemaCompiler::CompileAnyOf(const JsonValue& schema,
                                                    std::string_view keyword,
                                                    const std::string& pointer) {
  const JsonValue& any = *schema.Find(keyword);
  const std::string list_pointer = PointerTo(pointer, keyword);
  if (!any.is_array() || any.items.empty()) {
    return SchemaError(absl::StrCat("\"", std::string(keyword), "\" that is no list of schemas"),
                       pointer);
  }
  const JsonValue rest = Without(schema, keyword);
  std::vector<ExprPtr> choices;
  for (size_t i = 0; i < any.items.size(); ++i) {
    const std::string part_pointer = PointerTo(list_pointer, i);
    for (size_t j = 0; keyword == "oneOf" && j < i; ++j) {
      if (++work_ > kMostWork || !Disjoint(any.items[j], any.items[i], 0)) {
        return SchemaError(
            absl::StrCat("\"oneOf\" whose parts ", j, " and ", i, " may both be valid (use anyOf)"),
            pointer);
      }
    }
    if (rest.members.empty()) {
      BATON_ASSIGN_OR_RETURN(choices.emplace_back(), CompileSchema(any.items[i], part_pointer));
      continue;
    }
    const JsonValue* part = &Followed(any.items[i]);
    BATON_ASSIGN_OR_RETURN(const JsonValue merged, MergeSchemas(rest, *part, part_pointer));
    BATON_ASSIGN_OR_RETURN(choices.emplace_back(), CompileSchema(merged, part_pointer));
  }
  return Choice(std::move(choices));
}

SchemaCompiler::Result SchemaCompiler::CompileEnum(const JsonValue& schema,
                                                   const std::string& pointer) {
  std::vector<JsonValue> values;
  const JsonValue *list = schema.Find("enum"), *constant = schema.Find("const");
  if (list != nullptr && (!list->is_array() || list->items.empty())) {
    return SchemaError("\"enum\" that is no list of values", pointer);
  }
  if (constant != nullptr) {
    values.push_back(*constant);
  } else {
    values = list->items;
  }
  BATON_ASSIGN_OR_RETURN(const uint32_t types, TypesOf(schema, pointer, kAllTypes));
  for (const auto& member : schema.members) {
    if (KeywordNamed(member.first).use == KeywordUse::kConstrains) {
      return SchemaError(
          absl::StrCat("\"", member.first, "\" together with \"",
                       list != nullptr ? "enum" : "const", "\", which is not supported,"),
          pointer);
    }
  }
  std::vector<ExprPtr> choices;
  for (const JsonValue& value : values) {
    const bool listed = list == nullptr || constant == nullptr ||
                        std::any_of(list->items.begin(), list->items.end(),
                                    [&](const JsonValue& item) { return SameJson(item, value); });
    if (listed && (TypeOf(value) & ~types) == 0) choices.push_back(JsonLiteral(value));
  }
  return Choice(std::move(choices));
}

const AnyJson& SchemaCompiler::Any() {
  if (!any_) any_ = AddAnyJson(rules_);
  return *any_;
}

ExprPtr SchemaCompiler::AnyValue() { return Any().value; }
ExprPtr SchemaCompiler::AnyObject() { return Any().object; }

absl::StatusOr<RuleSet> RulesOfSchema(std::string_view schema) {
  BATON_ASSIGN_OR_RETURN(const JsonValue root, ParseJson(schema));
  return SchemaCompiler(&root).Compile();
}

RuleSet RulesOfAnyObject() {
  RuleSet rules;
  rules.start = AddAnyJson(rules).object->rule;
  return rules;
}

RuleSet RulesOfAnyValue() {
  RuleSet rules;
  rules.start = AddAnyJson(rules).value->rule;
  return rules;
}

}  // namespace baton::grammar
