// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"

namespace baton::grammar {
namespace {

constexpr uint32_t kMostCount = 65535;

struct NamedType {
  std::string_view name;
  uint32_t type;
};
constexpr NamedType kTypes[] = {{"null", kNullType},       {"boolean", kBooleanType},
                                {"integer", kIntegerType}, {"number", kNumberType},
                                {"string", kStringType},   {"array", kArrayType},
                                {"object", kObjectType}};

struct NamedKeyword {
  std::string_view name;
  Keyword keyword;
};
constexpr Keyword kNote{KeywordUse::kAnnotation, 0};
constexpr Keyword kCombination{KeywordUse::kCombines, 0};
constexpr Keyword Of(uint32_t types) { return {KeywordUse::kConstrains, types}; }

constexpr NamedKeyword kKeywords[] = {
    {"$schema", kNote},
    {"$id", kNote},
    {"$comment", kNote},
    {"$defs", kNote},
    {"definitions", kNote},
    {"title", kNote},
    {"description", kNote},
    {"default", kNote},
    {"examples", kNote},
    {"deprecated", kNote},
    {"readOnly", kNote},
    {"writeOnly", kNote},
    {"$ref", kCombination},
    {"allOf", kCombination},
    {"anyOf", kCombination},
    {"oneOf", kCombination},
    {"enum", kCombination},
    {"const", kCombination},
    {"type", kCombination},
    {"properties", Of(kObjectType)},
    {"required", Of(kObjectType)},
    {"additionalProperties", Of(kObjectType)},
    {"minProperties", Of(kObjectType)},
    {"maxProperties", Of(kObjectType)},
    {"items", Of(kArrayType)},
    {"prefixItems", Of(kArrayType)},
    {"minItems", Of(kArrayType)},
    {"maxItems", Of(kArrayType)},
    {"uniqueItems", Of(kArrayType)},
    {"minLength", Of(kStringType)},
    {"maxLength", Of(kStringType)},
    {"pattern", Of(kStringType)},
    {"format", Of(kStringType)},
    {"minimum", Of(kNumberType)},
    {"maximum", Of(kNumberType)},
    {"exclusiveMinimum", Of(kNumberType)},
    {"exclusiveMaximum", Of(kNumberType)},
};

std::string Escaped(std::string_view member) {
  return absl::StrReplaceAll(std::string(member), {{"~", "~0"}, {"/", "~1"}});
}

JsonValue* FindIn(JsonValue& object, std::string_view name) {
  return const_cast<JsonValue*>(object.Find(name));
}

absl::Status CannotMerge(std::string_view keyword, std::string_view pointer) {
  return SchemaError(
      absl::StrCat("two different \"", std::string(keyword), "\" that apply together"), pointer);
}

bool IsLower(std::string_view keyword) {
  return keyword.starts_with("min") || keyword == "exclusiveMinimum";
}
bool IsBound(std::string_view keyword) {
  return IsLower(keyword) || keyword.starts_with("max") || keyword == "exclusiveMaximum";
}

JsonValue TypeNames(uint32_t types) {
  JsonValue names{.type = JsonValue::Type::kArray};
  for (const NamedType& type : kTypes) {
    // "number" holds "integer".
    const bool redundant = type.type == kIntegerType && (types & kNumberType) == kNumberType;
    if ((types & type.type) == type.type && !redundant) {
      names.items.push_back({.type = JsonValue::Type::kString, .text = std::string(type.name)});
    }
  }
  return names;
}

// Puts `value` together with the equally named keyword of `into`.
absl::Status MergeKeyword(const std::string& keyword, const JsonValue& value, JsonValue& into,
                          std::string_view pointer) {
  JsonValue* own = FindIn(into, keyword);
  if (SameJson(*own, value)) return absl::OkStatus();
  if (KeywordNamed(keyword).use == KeywordUse::kAnnotation) return absl::OkStatus();
  if (keyword == "type") {
    JsonValue other{.type = JsonValue::Type::kObject};
    other.members.emplace_back("type", value);
    BATON_ASSIGN_OR_RETURN(const uint32_t mine, TypesOf(into, pointer, kAllTypes));
    BATON_ASSIGN_OR_RETURN(const uint32_t theirs, TypesOf(other, pointer, kAllTypes));
    *own = TypeNames(mine & theirs);
    return absl::OkStatus();
  }
  if (keyword == "required" && own->is_array() && value.is_array()) {
    for (const JsonValue& name : value.items) {
      const bool known = std::any_of(own->items.begin(), own->items.end(),
                                     [&](const JsonValue& item) { return SameJson(item, name); });
      if (!known) own->items.push_back(name);
    }
    return absl::OkStatus();
  }
  if (keyword == "properties" && own->is_object() && value.is_object()) {
    for (const auto& member : value.members) {
      JsonValue* mine = FindIn(*own, member.first);
      if (mine == nullptr) {
        own->members.push_back(member);
      } else if (!SameJson(*mine, member.second)) {
        BATON_ASSIGN_OR_RETURN(
            *mine, MergeSchemas(*mine, member.second, PointerTo(pointer, member.first)));
      }
    }
    return absl::OkStatus();
  }
  if (IsBound(keyword) && own->is_number() && value.is_number()) {
    const bool closer = IsLower(keyword) ? value.number > own->number : value.number < own->number;
    if (closer) *own = value;
    return absl::OkStatus();
  }
  return CannotMerge(keyword, pointer);
}

bool IsFalse(const JsonValue* value) {
  return value != nullptr && value->is_boolean() && !value->boolean;
}

// Words whose meaning depends on their neighbours in the same schema.
absl::Status CheckNeighbours(const JsonValue& a, const JsonValue& b, std::string_view pointer) {
  const auto same = [&](std::string_view keyword) {
    const JsonValue *mine = a.Find(keyword), *theirs = b.Find(keyword);
    return (mine == nullptr) == (theirs == nullptr) &&
           (mine == nullptr || SameJson(*mine, *theirs));
  };
  const auto has = [&](std::string_view keyword) {
    return a.Find(keyword) != nullptr || b.Find(keyword) != nullptr;
  };
  const auto empty = [](const JsonValue& schema, std::string_view x, std::string_view y) {
    return schema.Find(x) == nullptr && schema.Find(y) == nullptr;
  };
  const bool objects_apart = empty(a, "properties", "additionalProperties") ||
                             empty(b, "properties", "additionalProperties");
  if (has("additionalProperties") && !objects_apart && !same("properties")) {
    return CannotMerge("additionalProperties", pointer);
  }
  const bool arrays_apart = empty(a, "items", "prefixItems") || empty(b, "items", "prefixItems");
  if (has("prefixItems") && !arrays_apart && !(same("prefixItems") && same("items"))) {
    return CannotMerge("prefixItems", pointer);
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t TypeNamed(std::string_view name) {
  for (const NamedType& type : kTypes) {
    if (type.name == name) return type.type;
  }
  return 0;
}

uint32_t TypeOf(const JsonValue& value) {
  switch (value.type) {
    case JsonValue::Type::kNull:
      return kNullType;
    case JsonValue::Type::kBoolean:
      return kBooleanType;
    case JsonValue::Type::kInteger:
      return kIntegerType;
    case JsonValue::Type::kNumber:
      return value.number == std::floor(value.number) ? kIntegerType : kNumberType & ~kIntegerType;
    case JsonValue::Type::kString:
      return kStringType;
    case JsonValue::Type::kArray:
      return kArrayType;
    case JsonValue::Type::kObject:
      return kObjectType;
  }
  return 0;
}

Keyword KeywordNamed(std::string_view name) {
  for (const NamedKeyword& known : kKeywords) {
    if (known.name == name) return known.keyword;
  }
  return {};
}

std::string PointerTo(std::string_view parent, std::string_view member) {
  return absl::StrCat(std::string(parent), "/", Escaped(member));
}

std::string PointerTo(std::string_view parent, size_t index) {
  return absl::StrCat(std::string(parent), "/", index);
}

absl::Status SchemaError(std::string_view what, std::string_view pointer) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), " at ", std::string(pointer)));
}

absl::StatusOr<uint32_t> TypesOf(const JsonValue& schema, std::string_view pointer,
                                 uint32_t otherwise) {
  const JsonValue* type = schema.Find("type");
  if (type == nullptr) return otherwise;
  uint32_t types = 0;
  const auto add = [&types](const JsonValue& name) {
    const uint32_t named = name.is_string() ? TypeNamed(name.text) : 0;
    types |= named;
    return named != 0;
  };
  const bool good =
      type->is_array() ? std::all_of(type->items.begin(), type->items.end(), add) : add(*type);
  if (!good) return SchemaError("\"type\" that is no name of a type", pointer);
  return types;
}

uint32_t ImpliedTypes(const JsonValue& schema) {
  uint32_t types = 0;
  for (const auto& member : schema.members) types |= KeywordNamed(member.first).types;
  return types;
}

absl::StatusOr<uint32_t> CountOf(const JsonValue& schema, std::string_view keyword,
                                 std::string_view pointer, uint32_t otherwise) {
  const JsonValue* count = schema.Find(keyword);
  if (count == nullptr) return otherwise;
  if (!count->is_number() || count->number < 0 || count->number != std::floor(count->number)) {
    return SchemaError(absl::StrCat("\"", std::string(keyword), "\" that is no count"), pointer);
  }
  if (count->number > kMostCount) {
    return SchemaError(absl::StrCat("\"", std::string(keyword), "\" of ", count->text,
                                    "; the limit is ", kMostCount, ","),
                       pointer);
  }
  return static_cast<uint32_t>(count->number);
}

absl::StatusOr<JsonValue> MergeSchemas(const JsonValue& a, const JsonValue& b,
                                       std::string_view pointer) {
  if (IsFalse(&a) || (b.is_boolean() && b.boolean)) return a;
  if (IsFalse(&b) || (a.is_boolean() && a.boolean)) return b;
  if (!a.is_object() || !b.is_object()) return SchemaError("no schema", pointer);
  BATON_RETURN_IF_ERROR(CheckNeighbours(a, b, pointer));
  JsonValue merged = a;
  for (const auto& member : b.members) {
    if (merged.Find(member.first) == nullptr) {
      merged.members.push_back(member);
    } else {
      BATON_RETURN_IF_ERROR(MergeKeyword(member.first, member.second, merged, pointer));
    }
  }
  return merged;
}

}  // namespace baton::grammar
