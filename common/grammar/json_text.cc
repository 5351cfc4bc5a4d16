// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/json_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton::grammar {
namespace {

constexpr uint32_t kMostNumberDigits = 16;

CharSet NeedEscape() { return CharSet::Of({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}); }

CharSet Plain() { return NeedEscape().Complement(); }

std::string Escaped(uint32_t code) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return absl::StrFormat("\\u%04x", code);
  }
}

ExprPtr Digits(char first, char last) {
  return Class(CharSet::Of({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}}));
}

ExprPtr HexDigit() { return Class(CharSet::Of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}})); }

// \uXXXX of anything but surrogates.
ExprPtr UnicodeEscape() {
  const ExprPtr hex = HexDigit();
  const ExprPtr other =
      Class(CharSet::Of({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}));
  const ExprPtr below = Sequence({Class(CharSet::Of({{'D', 'D'}, {'d', 'd'}})), Digits('0', '7')});
  return Sequence({Text("\\u"), Choice({Sequence({other, hex}), below}), hex, hex});
}

std::string Spelled(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    out += byte < 0x20 || c == '"' || c == '\\' ? Escaped(byte) : std::string(1, c);
  }
  return out + "\"";
}

// Names that go on behind those of `names` that begin with the first `at`
// bytes of names[0]; `names` is sorted, and none is a repeat.
ExprPtr OtherNames(std::vector<std::string>::const_iterator begin,
                   std::vector<std::string>::const_iterator end, size_t at);

// The characters of a name from a place on where names of the list have parted.
ExprPtr NameCharacters() { return Repeat(Class(Plain()), 0, kNoLimit); }

// Bytes of the character at `at`.
size_t CharacterBytes(const std::string& text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
  return end - at;
}

uint32_t CodeOf(const std::string& text, size_t at) {
  const size_t bytes = CharacterBytes(text, at);
  uint32_t code = static_cast<uint8_t>(text[at]);
  if (bytes > 1) code &= 0x7Fu >> bytes;
  for (size_t i = 1; i < bytes; ++i) {
    code = code << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3Fu);
  }
  return code;
}

ExprPtr OtherNames(std::vector<std::string>::const_iterator begin,
                   std::vector<std::string>::const_iterator end, size_t at) {
  std::vector<ExprPtr> choices;
  const bool taken = begin->size() == at;  // a name of the list ends here
  if (taken) {
    ++begin;
  } else {
    choices.push_back(Text(""));
  }
  CharSet next;
  while (begin != end) {
    const std::string character = begin->substr(at, CharacterBytes(*begin, at));
    const auto last = std::find_if(begin, end, [&](const std::string& name) {
      return name.compare(at, character.size(), character) != 0;
    });
    const uint32_t code = CodeOf(*begin, at);
    next = next.Union(CharSet::Of({{code, code}}));
    choices.push_back(Sequence({Text(character), OtherNames(begin, last, at + character.size())}));
    begin = last;
  }
  choices.push_back(Sequence({Class(Plain().Minus(next)), NameCharacters()}));
  return Choice(std::move(choices));
}

}  // namespace

ExprPtr JsonComma() {
  static const ExprPtr comma = Sequence({Text(","), Optional(Text(" "))});
  return comma;
}

ExprPtr JsonColon() {
  static const ExprPtr colon = Sequence({Text(":"), Optional(Text(" "))});
  return colon;
}

ExprPtr JsonCharacter() {
  static const ExprPtr character = Choice({Class(Plain()),
                                           Sequence({Text("\\"), Class(CharSet::Of({{'"', '"'},
                                                                                    {'\\', '\\'},
                                                                                    {'b', 'b'},
                                                                                    {'f', 'f'},
                                                                                    {'n', 'n'},
                                                                                    {'r', 'r'},
                                                                                    {'t', 't'}}))}),
                                           UnicodeEscape()});
  return character;
}

ExprPtr JsonCharacter(const CharSet& set) {
  std::vector<ExprPtr> choices{Class(set.Minus(NeedEscape()))};
  const CharSet escaped = set.Minus(Plain());
  for (const CodeRange& range : escaped.ranges()) {
    for (uint32_t code = range.first; code <= range.last; ++code) {
      choices.push_back(Text(Escaped(code)));
    }
  }
  return Choice(std::move(choices));
}

ExprPtr JsonString(ExprPtr characters) {
  return Sequence({Text("\""), std::move(characters), Text("\"")});
}

ExprPtr JsonLiteral(std::string_view text) { return Text(Spelled(text)); }

ExprPtr JsonLiteral(const JsonValue& value) {
  switch (value.type) {
    case JsonValue::Type::kNull:
      return Text("null");
    case JsonValue::Type::kBoolean:
      return Text(value.boolean ? "true" : "false");
    case JsonValue::Type::kInteger:
    case JsonValue::Type::kNumber:
      return Text(value.text);
    case JsonValue::Type::kString:
      return JsonLiteral(value.text);
    default:
      break;
  }
  std::vector<ExprPtr> parts;
  const auto next = [&parts] {
    if (!parts.empty()) parts.push_back(JsonComma());
  };
  for (const JsonValue& item : value.items) {
    next();
    parts.push_back(JsonLiteral(item));
  }
  for (const auto& member : value.members) {
    next();
    parts.insert(parts.end(), {JsonLiteral(member.first), JsonColon(), JsonLiteral(member.second)});
  }
  ExprPtr inside = Sequence(std::move(parts));
  return value.is_array() ? JsonBrackets(std::move(inside)) : JsonBraces(std::move(inside));
}

ExprPtr JsonNameOtherThan(std::vector<std::string> names) {
  // Names that need an escape cannot be spelled anyway.
  std::erase_if(names,
                [](const std::string& name) { return Spelled(name).size() != name.size() + 2; });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.empty()) return JsonString(NameCharacters());
  return JsonString(OtherNames(names.begin(), names.end(), 0));
}

ExprPtr JsonInteger() {
  static const ExprPtr integer = Sequence(
      {Optional(Text("-")),
       Choice({Text("0"),
               Sequence({Digits('1', '9'), Repeat(Digits('0', '9'), 0, kMostNumberDigits - 1)})})});
  return integer;
}

ExprPtr JsonNumber() {
  static const ExprPtr number =
      Sequence({JsonInteger(),
                Optional(Sequence({Text("."), Repeat(Digits('0', '9'), 1, kMostNumberDigits)})),
                Optional(Sequence({Class(CharSet::Of({{'E', 'E'}, {'e', 'e'}})),
                                   Optional(Class(CharSet::Of({{'+', '+'}, {'-', '-'}}))),
                                   Repeat(Digits('0', '9'), 1, 2)}))});
  return number;
}

ExprPtr JsonBraces(ExprPtr members) { return Sequence({Text("{"), std::move(members), Text("}")}); }

ExprPtr JsonBrackets(ExprPtr items) { return Sequence({Text("["), std::move(items), Text("]")}); }

ExprPtr JsonList(const ExprPtr& item, uint32_t min, uint32_t max) {
  if (max == 0) return Text("");
  const uint32_t more = max == kNoLimit ? kNoLimit : max - 1;
  ExprPtr list =
      Sequence({item, Repeat(Sequence({JsonComma(), item}), min > 0 ? min - 1 : 0, more)});
  return min == 0 ? Optional(std::move(list)) : list;
}

AnyJson AddAnyJson(RuleSet& rules) {
  const auto first = static_cast<uint32_t>(rules.rules.size());
  AnyJson any{Rule(first), Rule(first + 1), Rule(first + 2)};
  const ExprPtr string = JsonString(Repeat(JsonCharacter(), 0, kNoLimit));
  rules.rules.push_back(Choice(
      {string, JsonNumber(), Text("true"), Text("false"), Text("null"), any.object, any.array}));
  const ExprPtr member = Sequence({string, JsonColon(), any.value});
  rules.rules.push_back(JsonBraces(JsonList(member, 0, kNoLimit)));
  rules.rules.push_back(JsonBrackets(JsonList(any.value, 0, kNoLimit)));
  return any;
}

}  // namespace baton::grammar
