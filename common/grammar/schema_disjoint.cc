// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "common/grammar/schema_compiler.h"
#include "common/grammar/schema_keywords.h"

namespace baton::grammar {
namespace {

constexpr int kMostProofDepth = 8;

// The values of enum or const; null: it is neither.
std::vector<const JsonValue*> ValuesOf(const JsonValue& schema, bool* listed) {
  std::vector<const JsonValue*> values;
  const JsonValue *constant = schema.Find("const"), *list = schema.Find("enum");
  *listed = constant != nullptr || list != nullptr;
  if (constant != nullptr) {
    values.push_back(constant);
  } else if (list != nullptr) {
    for (const JsonValue& value : list->items) values.push_back(&value);
  }
  return values;
}

uint32_t ValidTypes(const JsonValue& schema) {
  const auto types = TypesOf(schema, "#", kAllTypes);
  return types.ok() ? *types : uint32_t{kAllTypes};
}

// Types of the texts that are made from it: without "type" those its words are about.
uint32_t WrittenTypes(const JsonValue& schema) {
  for (const char* combination : {"$ref", "allOf", "anyOf", "oneOf"}) {
    if (schema.Find(combination) != nullptr) return ValidTypes(schema);
  }
  const uint32_t implied = ImpliedTypes(schema);
  return schema.Find("type") != nullptr || implied == 0 ? ValidTypes(schema) : implied;
}

bool Requires(const JsonValue& schema, std::string_view name) {
  const JsonValue* required = schema.Find("required");
  return required != nullptr &&
         std::any_of(required->items.begin(), required->items.end(),
                     [&](const JsonValue& item) { return item.is_string() && item.text == name; });
}

bool Forbids(const JsonValue& schema, std::string_view name) {
  const JsonValue* others = schema.Find("additionalProperties");
  const JsonValue* properties = schema.Find("properties");
  return others != nullptr && others->is_boolean() && !others->boolean &&
         (properties == nullptr || properties->Find(name) == nullptr);
}

const JsonValue* PropertyOf(const JsonValue& schema, std::string_view name) {
  const JsonValue* properties = schema.Find("properties");
  return properties == nullptr ? nullptr : properties->Find(name);
}

}  // namespace

const JsonValue& SchemaCompiler::Followed(const JsonValue& schema) const {
  const JsonValue* at = &schema;
  for (int i = 0; i < kMostProofDepth; ++i) {
    const JsonValue* reference = at->Find("$ref");
    if (reference == nullptr || !reference->is_string() || at->members.size() > 1) break;
    const auto target = Resolve(reference->text, "#");
    if (!target.ok()) break;
    at = *target;
  }
  return *at;
}

bool SchemaCompiler::Disjoint(const JsonValue& first, const JsonValue& second, int depth) const {
  if (depth > kMostProofDepth) return false;
  const JsonValue &a = Followed(first), &b = Followed(second);
  if (!a.is_object() || !b.is_object()) return false;
  bool a_listed = false, b_listed = false;
  const auto a_values = ValuesOf(a, &a_listed), b_values = ValuesOf(b, &b_listed);
  if (a_listed && b_listed) {
    return std::none_of(a_values.begin(), a_values.end(), [&](const JsonValue* mine) {
      return std::any_of(b_values.begin(), b_values.end(),
                         [&](const JsonValue* theirs) { return SameJson(*mine, *theirs); });
    });
  }
  const uint32_t a_types = ValidTypes(a), b_types = ValidTypes(b);
  const auto outside = [](uint32_t types) {
    return [types](const JsonValue* value) { return (TypeOf(*value) & ~types) != 0; };
  };
  if (a_listed) return std::all_of(a_values.begin(), a_values.end(), outside(b_types));
  if (b_listed) return std::all_of(b_values.begin(), b_values.end(), outside(a_types));
  const uint32_t both = (WrittenTypes(a) & b_types) | (WrittenTypes(b) & a_types);
  return both == 0 || (both == kObjectType && DisjointObjects(a, b, depth));
}

// A member that both have, or that one must and the other must not have.
bool SchemaCompiler::DisjointObjects(const JsonValue& a, const JsonValue& b, int depth) const {
  const auto tells_apart = [&](const JsonValue& one, const JsonValue& other) {
    const JsonValue* required = one.Find("required");
    if (required == nullptr) return false;
    return std::any_of(required->items.begin(), required->items.end(), [&](const JsonValue& item) {
      if (!item.is_string()) return false;
      if (Forbids(other, item.text)) return true;
      const JsonValue *mine = PropertyOf(one, item.text), *theirs = PropertyOf(other, item.text);
      return mine != nullptr && theirs != nullptr && Requires(other, item.text) &&
             Disjoint(*mine, *theirs, depth + 1);
    });
  };
  return tells_apart(a, b) || tells_apart(b, a);
}

}  // namespace baton::grammar
