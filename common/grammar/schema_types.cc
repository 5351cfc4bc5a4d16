// SPDX-License-Identifier: Apache-2.0
// Values of one type.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/formats.h"
#include "common/grammar/number_range.h"
#include "common/grammar/probe.h"
#include "common/grammar/program.h"
#include "common/grammar/regex.h"
#include "common/grammar/schema_compiler.h"
#include "common/grammar/schema_keywords.h"

namespace baton::grammar {
namespace {

std::string Quoted(std::string_view keyword) {
  return absl::StrCat("\"", std::string(keyword), "\"");
}

absl::Status OutOfOrder(std::string_view least, std::string_view most, std::string_view pointer) {
  return SchemaError(absl::StrCat(Quoted(least), " above ", Quoted(most)), pointer);
}

}  // namespace

SchemaCompiler::Result SchemaCompiler::CompileTypes(const JsonValue& schema,
                                                    const std::string& pointer) {
  const uint32_t implied = ImpliedTypes(schema);
  if (schema.Find("type") == nullptr && implied == 0) return AnyValue();
  BATON_ASSIGN_OR_RETURN(const uint32_t types, TypesOf(schema, pointer, implied));
  std::vector<ExprPtr> choices;
  if ((types & kNullType) != 0) choices.push_back(Text("null"));
  if ((types & kBooleanType) != 0) choices.insert(choices.end(), {Text("true"), Text("false")});
  if ((types & kIntegerType) != 0) {
    const bool integer = (types & kNumberType) != kNumberType;
    BATON_ASSIGN_OR_RETURN(choices.emplace_back(), CompileNumber(schema, integer, pointer));
  }
  if ((types & kStringType) != 0) {
    BATON_ASSIGN_OR_RETURN(choices.emplace_back(), CompileString(schema, pointer));
  }
  if ((types & kArrayType) != 0) {
    BATON_ASSIGN_OR_RETURN(choices.emplace_back(), CompileArray(schema, pointer));
  }
  if ((types & kObjectType) != 0) {
    BATON_ASSIGN_OR_RETURN(choices.emplace_back(), CompileObject(schema, pointer));
  }
  return Choice(std::move(choices));
}

SchemaCompiler::Result SchemaCompiler::CompileString(const JsonValue& schema,
                                                     const std::string& pointer) {
  const JsonValue *pattern = schema.Find("pattern"), *format = schema.Find("format");
  if (pattern != nullptr && format != nullptr) {
    return SchemaError("\"pattern\" together with \"format\", which is not supported,", pointer);
  }
  if (pattern != nullptr) {
    if (!pattern->is_string()) return SchemaError("\"pattern\" that is no string", pointer);
    return CompilePattern(pattern->text, /*anchored=*/false, "pattern", schema, pointer);
  }
  if (format != nullptr) {
    const auto known = format->is_string() ? FormatPattern(format->text) : std::nullopt;
    if (!known) {
      return SchemaError(absl::StrCat("\"format\" \"", format->text, "\", which is not supported,"),
                         pointer);
    }
    return CompilePattern(*known, /*anchored=*/true, "format", schema, pointer);
  }
  BATON_ASSIGN_OR_RETURN(const uint32_t least, CountOf(schema, "minLength", pointer, 0));
  BATON_ASSIGN_OR_RETURN(const uint32_t most, CountOf(schema, "maxLength", pointer, kNoLimit));
  if (least > most) return OutOfOrder("minLength", "maxLength", pointer);
  return JsonString(Repeat(JsonCharacter(), least, most));
}

SchemaCompiler::Result SchemaCompiler::CompilePattern(std::string_view pattern, bool anchored,
                                                      std::string_view keyword,
                                                      const JsonValue& schema,
                                                      const std::string& pointer) {
  const auto regex = ParseRegex(pattern, {.anchored = anchored, .spell = [](const CharSet& set) {
                                            return JsonCharacter(set);
                                          }});
  if (!regex.ok()) {
    return SchemaError(absl::StrCat(Quoted(keyword), " (", regex.status().message(), ")"), pointer);
  }
  // Both at once would need the intersection of two automata.
  BATON_ASSIGN_OR_RETURN(const uint32_t least, CountOf(schema, "minLength", pointer, 0));
  BATON_ASSIGN_OR_RETURN(const uint32_t most, CountOf(schema, "maxLength", pointer, kNoLimit));
  if (least > regex->least || most < regex->most) {
    const char* length = least > regex->least ? "minLength" : "maxLength";
    return SchemaError(absl::StrCat(Quoted(length), " together with ", Quoted(keyword),
                                    ", which does not keep to it by itself, is not supported"),
                       pointer);
  }
  ExprPtr string = JsonString(regex->expr);
  const auto program = MakeProgram({{string}, 0});
  const absl::Status probed = program.ok() ? Probe(*program, &probe_budget_) : program.status();
  if (!probed.ok()) {
    return SchemaError(absl::StrCat(Quoted(keyword), " (", probed.message(), ")"), pointer);
  }
  return string;
}

SchemaCompiler::Result SchemaCompiler::CompileNumber(const JsonValue& schema, bool integer,
                                                     const std::string& pointer) {
  NumberRange range;
  const auto read = [&](std::string_view keyword, bool low, bool exclusive) -> absl::Status {
    const JsonValue* bound = schema.Find(keyword);
    if (bound == nullptr) return absl::OkStatus();
    if (!bound->is_number()) {
      return SchemaError(absl::StrCat(Quoted(keyword), " that is no number"), pointer);
    }
    std::optional<NumberBound>& own = low ? range.low : range.high;
    const double value = bound->number;
    const bool closer = !own || (low ? value > own->value : value < own->value) ||
                        (value == own->value && exclusive);
    if (closer) own = NumberBound{value, exclusive};
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(read("minimum", true, false));
  BATON_RETURN_IF_ERROR(read("exclusiveMinimum", true, true));
  BATON_RETURN_IF_ERROR(read("maximum", false, false));
  BATON_RETURN_IF_ERROR(read("exclusiveMaximum", false, true));
  if (!range.bounded()) return integer ? JsonInteger() : JsonNumber();
  Result numbers = integer ? IntegersIn(range) : NumbersIn(range);
  if (!numbers.ok()) return SchemaError(std::string(numbers.status().message()), pointer);
  return numbers;
}

SchemaCompiler::Result SchemaCompiler::CompileArray(const JsonValue& schema,
                                                    const std::string& pointer) {
  BATON_ASSIGN_OR_RETURN(const uint32_t least, CountOf(schema, "minItems", pointer, 0));
  BATON_ASSIGN_OR_RETURN(const uint32_t most, CountOf(schema, "maxItems", pointer, kNoLimit));
  if (least > most) return OutOfOrder("minItems", "maxItems", pointer);
  const JsonValue *items = schema.Find("items"), *prefix = schema.Find("prefixItems");
  const JsonValue* unique = schema.Find("uniqueItems");
  if (unique != nullptr && !(unique->is_boolean() && !unique->boolean) && most > 1) {
    return SchemaError("\"uniqueItems\", which is not supported,", pointer);
  }
  if (prefix != nullptr && !prefix->is_array()) {
    return SchemaError("\"prefixItems\" that is no list of schemas", pointer);
  }
  ExprPtr item = Nothing();
  if (items != nullptr) {
    BATON_ASSIGN_OR_RETURN(item, CompileSchema(*items, PointerTo(pointer, "items")));
  } else if (prefix == nullptr || least > prefix->items.size()) {
    item = AnyValue();
  }
  if (prefix == nullptr || prefix->items.empty()) {
    if (item->kind == ExprKind::kNothing) return least == 0 ? Text("[]") : Nothing();
    return JsonBrackets(JsonList(item, least, most));
  }
  const auto fixed = static_cast<uint32_t>(prefix->items.size());
  // From the last one to the first: what follows is optional beyond `least`.
  ExprPtr rest = Repeat(Sequence({JsonComma(), item}), least > fixed ? least - fixed : 0,
                        most == kNoLimit ? kNoLimit : most - std::min(fixed, most));
  for (uint32_t i = fixed; i-- > 0;) {
    if (i >= most) continue;
    const std::string at = PointerTo(PointerTo(pointer, "prefixItems"), size_t{i});
    BATON_ASSIGN_OR_RETURN(const ExprPtr value, CompileSchema(prefix->items[i], at));
    rest = Sequence({i > 0 ? JsonComma() : Text(""), value, rest});
    if (i >= least) rest = Optional(rest);
  }
  return JsonBrackets(rest);
}

absl::StatusOr<std::vector<SchemaCompiler::Property>> SchemaCompiler::PropertiesOf(
    const JsonValue& schema, const std::string& pointer) {
  const JsonValue *properties = schema.Find("properties"), *required = schema.Find("required");
  const JsonValue* others = schema.Find("additionalProperties");
  if (properties != nullptr && !properties->is_object()) {
    return SchemaError("\"properties\" that is no object", pointer);
  }
  absl::flat_hash_set<std::string> names;
  if (required != nullptr) {
    for (const JsonValue& name : required->items) {
      if (name.is_string()) names.insert(name.text);
    }
    if (!required->is_array() || names.size() != required->items.size()) {
      return SchemaError("\"required\" that is no list of different names", pointer);
    }
  }
  std::vector<Property> found;
  const auto add = [&](const std::string& name, const ExprPtr& value, bool is_required) {
    found.push_back({Sequence({JsonLiteral(name), JsonColon(), value}), is_required});
  };
  if (properties != nullptr) {
    for (const auto& member : properties->members) {
      const std::string at = PointerTo(PointerTo(pointer, "properties"), member.first);
      BATON_ASSIGN_OR_RETURN(const ExprPtr value, CompileSchema(member.second, at));
      const bool is_required = names.erase(member.first) > 0;
      // A property that has no valid value is left out.
      if (is_required || value->kind != ExprKind::kNothing) add(member.first, value, is_required);
    }
  }
  if (names.empty()) return found;
  ExprPtr other = AnyValue();
  if (others != nullptr) {
    BATON_ASSIGN_OR_RETURN(other,
                           CompileSchema(*others, PointerTo(pointer, "additionalProperties")));
  }
  for (const JsonValue& name : required->items) {
    if (names.contains(name.text)) add(name.text, other, true);
  }
  return found;
}

SchemaCompiler::Result SchemaCompiler::OtherMembers(const JsonValue& schema,
                                                    const std::string& pointer) {
  const JsonValue* others = schema.Find("additionalProperties");
  const JsonValue *properties = schema.Find("properties"), *required = schema.Find("required");
  ExprPtr value = Nothing();
  if (others != nullptr) {
    BATON_ASSIGN_OR_RETURN(value,
                           CompileSchema(*others, PointerTo(pointer, "additionalProperties")));
  } else if (properties == nullptr && required == nullptr) {
    value = AnyValue();
  }
  if (value->kind == ExprKind::kNothing) return value;
  std::vector<std::string> names;
  if (properties != nullptr) {
    for (const auto& member : properties->members) names.push_back(member.first);
  }
  if (required != nullptr) {
    for (const JsonValue& name : required->items) names.push_back(name.text);
  }
  return Sequence({JsonNameOtherThan(std::move(names)), JsonColon(), value});
}

// Counts are kept where the names that there are keep to them anyway.
absl::Status SchemaCompiler::CheckPropertyCounts(const JsonValue& schema, size_t required,
                                                 size_t named, bool others,
                                                 const std::string& pointer) const {
  BATON_ASSIGN_OR_RETURN(const uint32_t least, CountOf(schema, "minProperties", pointer, 0));
  BATON_ASSIGN_OR_RETURN(const uint32_t most, CountOf(schema, "maxProperties", pointer, kNoLimit));
  if (least > required) {
    return SchemaError(
        "\"minProperties\" above the number of required ones, which is not supported,", pointer);
  }
  if (most != kNoLimit && (others || most < named)) {
    return SchemaError(
        "\"maxProperties\" below the number of possible ones, which is not supported,", pointer);
  }
  return absl::OkStatus();
}

SchemaCompiler::Result SchemaCompiler::CompileObject(const JsonValue& schema,
                                                     const std::string& pointer) {
  BATON_ASSIGN_OR_RETURN(const std::vector<Property> properties, PropertiesOf(schema, pointer));
  BATON_ASSIGN_OR_RETURN(const ExprPtr other, OtherMembers(schema, pointer));
  const bool others = other->kind != ExprKind::kNothing;
  const auto required = static_cast<size_t>(std::count_if(
      properties.begin(), properties.end(), [](const Property& p) { return p.required; }));
  BATON_RETURN_IF_ERROR(CheckPropertyCounts(schema, required, properties.size(), others, pointer));
  // From the last property to the first: what follows when some member stands
  // before, and when none does.
  ExprPtr after = others ? Repeat(Sequence({JsonComma(), other}), 0, kNoLimit) : Text("");
  ExprPtr first = others ? JsonList(other, 0, kNoLimit) : Text("");
  for (size_t i = properties.size(); i-- > 0;) {
    const Property& property = properties[i];
    ExprPtr with_comma = Sequence({JsonComma(), property.member, after});
    ExprPtr without = Sequence({property.member, after});
    after = property.required ? with_comma : Choice({with_comma, after});
    first = property.required ? without : Choice({without, first});
  }
  return JsonBraces(first);
}

}  // namespace baton::grammar
