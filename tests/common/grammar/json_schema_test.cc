// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/common/grammar/acceptance.h"

namespace baton::grammar {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string schema;
  std::vector<std::string> valid, invalid;
};

void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Acceptor accepts = Schema(c.schema);
    for (const std::string& text : c.valid) EXPECT_TRUE(accepts(text)) << c.schema << " : " << text;
    for (const std::string& text : c.invalid)
      EXPECT_FALSE(accepts(text)) << c.schema << " : " << text;
  }
}

TEST(JsonSchema, ScalarsOfEachType) {
  Check({{R"({"type":"null"})", {"null"}, {"", "nul", "true"}},
         {R"({"type":"boolean"})", {"true", "false"}, {"null", "True"}},
         {R"({"type":"integer"})", {"0", "-7", "1234567890"}, {"1.0", "01", "-", "+1", "1e3"}},
         {R"({"type":"number"})", {"0", "-0.5", "1e5", "12.75E-3"}, {".5", "1.", "1e", "NaN"}},
         {R"({"type":"string"})",
          {R"("")", R"("a b")", R"("\n\"\\")", R"("\u00e9\uD7FF")", R"("中🎉")"},
          {"abc", "\"a\nb\"", R"("\x")", R"("\ud800")", "\"\xC3\"", R"("a)"}},
         {R"({"type":["integer","null"]})", {"3", "null"}, {"3.5", "\"a\""}},
         {R"({"type":["integer","number"]})", {"3", "3.5"}, {"\"a\""}}});
}

TEST(JsonSchema, LengthsCountCharacters) {
  Check({{R"({"type":"string","minLength":2,"maxLength":3})",
          {R"("ab")", R"("中中中")", R"("\n\u00e9")", R"("🎉é")"},
          {R"("a")", R"("abcd")", R"("\n")"}},
         {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}}});
}

TEST(JsonSchema, PatternsAreSearchedInTheDecodedText) {
  Check({{R"({"type":"string","pattern":"^[a-c]+$"})", {R"("abc")"}, {R"("")", R"("abd")"}},
         {R"({"type":"string","pattern":"b"})", {R"("b")", R"("aba")"}, {R"("ac")"}},
         {R"({"type":"string","pattern":"^a"})", {R"("a")", R"("abc")"}, {R"("ba")"}},
         {R"({"type":"string","pattern":"^(yes|no)$|^maybe"})",
          {R"("yes")", R"("maybe not")"},
          {R"("yes!")"}},
         {R"({"type":"string","pattern":"^[\"\\\\\\n]$"})",
          {R"("\"")", R"("\\")", R"("\n")"},
          {R"("n")", "\"\n\"", R"("\u000a")"}},
         {R"({"type":"string","pattern":"^[A-Z]{2}[0-9]{3}$","minLength":5,"maxLength":5})",
          {R"("AB123")"},
          {R"("A1234")"}}});
}

TEST(JsonSchema, FormatsTakeTheUsualSpellings) {
  Check({{R"({"type":"string","format":"date"})",
          {R"("2024-02-28")", R"("1999-12-31")"},
          {R"("2023-02-29")", R"("2024-13-01")", R"("2024-04-31")", R"("24-01-01")"}},
         {R"({"format":"date-time"})",
          {R"("2024-05-06T07:08:09Z")", R"("2024-05-06T07:08:09.5+02:00")"},
          {R"("2024-05-06 07:08:09Z")", R"("2024-05-06T25:00:00Z")"}},
         {R"({"format":"time"})", {R"("23:59:59Z")"}, {R"("24:00:00Z")"}},
         {R"({"format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
         {R"({"format":"email"})", {R"("a.b@example.org")"}, {R"("a@b@c.de")", R"("@x.de")"}},
         {R"({"format":"ipv4"})", {R"("192.168.0.255")"}, {R"("256.1.1.1")", R"("1.2.3")"}},
         {R"({"format":"ipv6"})", {R"("fe80:0:0:0:1:2:3:4")"}, {R"("fe80:0")"}},
         {R"({"format":"hostname"})", {R"("a.example.org")"}, {R"("-a.org")"}},
         {R"({"format":"duration"})", {R"("P3D")", R"("PT4H5M")"}, {R"("P")", R"("3D")"}},
         {R"({"format":"uri"})", {R"("https://example.org/a/b?c=d")"}, {R"("example")"}}});
}

TEST(JsonSchema, BoundsOfNumbers) {
  Check({{R"({"type":"integer","minimum":3,"exclusiveMaximum":120})",
          {"3", "42", "119"},
          {"2", "120", "-5", "1190"}},
         {R"({"type":"number","exclusiveMinimum":-1.5,"maximum":2})",
          {"-1.25", "0", "1.999", "2", "2.0"},
          {"-1.5", "2.1", "-2", "1e0"}},
         {R"({"minimum":0})", {"0", "12.5"}, {"-1"}}});
}

TEST(JsonSchema, EnumsAndConstants) {
  Check({{R"({"enum":["red","green",3,null,{"a":[1,2]}]})",
          {R"("red")", "3", "null", R"({"a":[1,2]})", R"({"a": [1, 2]})"},
          {R"("blue")", "4", R"("re")", R"({"a":[1]})"}},
         {R"({"const":"a\"b"})", {R"("a\"b")"}, {R"("ab")"}},
         {R"({"type":"string","enum":["x",1]})", {R"("x")"}, {"1"}},
         {R"({"const":1,"enum":[1,2]})", {"1"}, {"2"}}});
}

TEST(JsonSchema, ArraysOfItemsAndTuples) {
  Check(
      {{R"({"type":"array","items":{"type":"integer"}})",
        {"[]", "[1]", "[1,2, 3]"},
        {"[1,]", "[,1]", "[1,  2]", "[\"a\"]"}},
       {R"({"items":{"type":"integer"},"minItems":2,"maxItems":3})",
        {"[1,2]", "[1,2,3]"},
        {"[]", "[1]", "[1,2,3,4]"}},
       {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
       {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"minItems":2})",
        {R"([1,"a"])"},
        {"[1]", R"([1,"a",2])", R"(["a",1])"}},
       {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"maxItems":3})",
        {"[]", "[1]", "[1,null]", "[1,null,null]"},
        {"[null]", "[1,null,null,null]"}},
       {R"({"type":"array","items":{"type":"array","items":{"enum":[0,1]}}})",
        {"[[0],[1,0],[]]"},
        {"[0]"}},
       {R"({"type":"array","items":false})", {"[]"}, {"[1]"}}});
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrder) {
  const std::string schema =
      R"({"type":"object","properties":{"z":{"type":"integer"},"a":{"type":"string"},"m":{"type":"null"}},"required":["a"]})";
  Check({{schema,
          {R"({"z":1,"a":"x","m":null})", R"({"a":"x"})", R"({"z": 1, "a": "x"})",
           R"({"a":"x","m":null})"},
          {R"({"a":"x","z":1})", R"({})", R"({"z":1})", R"({"a":"x","b":1})", R"({"a":"x",})",
           R"({,"a":"x"})", R"({ "a":"x"})"}},
         {R"({"properties":{"a":{"type":"integer"}}})", {"{}", R"({"a":1})"}, {R"({"b":1})", "1"}},
         {R"({"type":"object"})", {"{}", R"({"a":{"b":[1,"x",null]}})"}, {"[]"}},
         {R"({"required":["x"],"properties":{"y":{"const":1}}})",
          {R"({"y":1,"x":[]})", R"({"x":"a"})"},
          {R"({"y":1})"}}});
}

TEST(JsonSchema, OtherPropertiesAreNoneOfTheNamedOnes) {
  Check(
      {{R"({"type":"object","properties":{"ab":{"const":1},"a":{"const":2},"né":{"const":3}},"additionalProperties":{"type":"boolean"}})",
        {"{}", R"({"x":true})", R"({"ab":1,"abc":true})", R"({"ab":1,"a":2,"b":false,"":true})",
         R"({"n":true,"né!":false})"},
        {R"({"ab":true})", R"({"a":true})", R"({"né":true})", R"({"x":1})", R"({"x":true,"ab":1})",
         R"({"a\u0062":true})"}},
       {R"({"additionalProperties":{"type":"integer"}})",
        {"{}", R"({"k":1,"l":2})"},
        {R"({"k":"v"})"}},
       {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}}});
}

TEST(JsonSchema, ChoicesBetweenSchemas) {
  Check(
      {{R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
        {"5", R"("a")"},
        {R"("ab")"}},
       {R"({"type":"object","properties":{"a":{"type":"integer"}},"anyOf":[{"required":["a"]},{"properties":{"b":{"const":0}},"required":["b"]}]})",
        {R"({"a":1})", R"({"a":1,"b":0})", R"({"b":0})"},
        {"{}"}},
       {R"({"oneOf":[{"properties":{"k":{"const":"x"},"v":{"type":"integer"}},"required":["k","v"]},{"properties":{"k":{"const":"y"}},"required":["k"]}]})",
        {R"({"k":"x","v":1})", R"({"k":"y"})"},
        {R"({"k":"x"})"}}});
}

TEST(JsonSchema, AllOfIsMerged) {
  Check(
      {{R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]})",
        {R"({"a":1,"b":null})"},
        {R"({"a":1})"}},
       {R"({"type":"integer","minimum":0,"allOf":[{"minimum":5},{"maximum":7}]})",
        {"5", "7"},
        {"4", "8"}},
       {R"({"allOf":[{"$ref":"#/$defs/p"},{"maxLength":2}],"$defs":{"p":{"type":"string","minLength":1}}})",
        {R"("ab")"},
        {R"("")", R"("abc")"}}});
}

TEST(JsonSchema, ReferencesMayRecur) {
  Check(
      {{R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}}})",
        {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
        {R"({"v":1})", R"({"v":1,"next":{}})"}},
       {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
       {R"({"properties":{"a":{"type":"null"},"b":{"$ref":"#/properties/a"}}})",
        {R"({"a":null,"b":null})"},
        {R"({"b":1})"}},
       {R"({"$defs":{"a/b":{"const":1}},"$ref":"#/$defs/a~1b"})", {"1"}, {"2"}}});
}

TEST(JsonSchema, NestingHasALimitThatLeavesNoDeadEnd) {
  Acceptor accepts = Schema(R"({"type":"array","items":{"$ref":"#"}})");
  const std::string open(60, '['), close(60, ']');
  EXPECT_TRUE(accepts(open + close));
  EXPECT_FALSE(accepts(std::string(80, '[') + std::string(80, ']')));
}

TEST(JsonSchema, AnyJsonIsAnyJson) {
  Acceptor value(Source{.kind = SourceKind::kAnyValue, .text = "", .choices = {}});
  Acceptor object(Source{.kind = SourceKind::kAnyObject, .text = "", .choices = {}});
  for (const char* text : {R"({"a":[1,2.5,{"b":null}],"c":"d"})", "{}"}) {
    EXPECT_TRUE(value(text)) << text;
    EXPECT_TRUE(object(text)) << text;
  }
  for (const char* text : {"1", "[]", "\"x\"", "null"}) {
    EXPECT_TRUE(value(text)) << text;
    EXPECT_FALSE(object(text)) << text;
  }
  for (const char* text : {"", "{", "{a:1}", "[1 ,2]", "nul", "{} "})
    EXPECT_FALSE(value(text)) << text;
}

TEST(JsonSchema, WhatIsNotSupportedIsNamedWithItsPlace) {
  struct Refused {
    const char *schema, *problem;
  };
  const Refused cases[] = {
      {R"({"properties":{"a":{"not":{"type":"null"}}}})",
       "keyword \"not\" at #/properties/a is not supported"},
      {R"({"if":{}})", "keyword \"if\" at # is not supported"},
      {R"({"type":"array","contains":{}})", "keyword \"contains\" at #"},
      {R"({"patternProperties":{}})", "keyword \"patternProperties\""},
      {R"({"propertyNames":{}})", "keyword \"propertyNames\""},
      {R"({"dependentRequired":{}})", "keyword \"dependentRequired\""},
      {R"({"type":"number","multipleOf":0.1})", "keyword \"multipleOf\""},
      {R"({"unevaluatedProperties":false})", "keyword \"unevaluatedProperties\""},
      {R"({"minLenght":3})", "keyword \"minLenght\" at # is not supported"},
      {R"({"items":{"type":"array","uniqueItems":true}})",
       "\"uniqueItems\", which is not supported, at #/items"},
      {R"({"type":"string","format":"iri"})", "\"format\" \"iri\", which is not supported, at #"},
      {R"j({"type":"string","pattern":"a(?=b)"})j",
       "\"pattern\" (lookahead (?=...) at byte 1 is not supported) at #"},
      {R"({"type":"string","pattern":"^a*$","maxLength":3})",
       "\"maxLength\" together with \"pattern\""},
      {R"({"type":"object","minProperties":2})",
       "\"minProperties\" above the number of required ones"},
      {R"({"type":"object","maxProperties":2})",
       "\"maxProperties\" below the number of possible ones"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
       "\"oneOf\" whose parts 0 and 1 may both be valid (use anyOf) at #"},
      {R"({"oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]})",
       "\"oneOf\" whose parts 0 and 1"},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})",
       "two different \"pattern\" that apply together at #/allOf/1"},
      {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
       "\"additionalProperties\""},
      {R"({"enum":["abc"],"maxLength":2})", "\"maxLength\" together with \"enum\""},
      {R"({"$ref":"other.json#/a"})", "outside of the schema"},
      {R"({"$ref":"#/$defs/missing"})", "which does not exist"},
      {R"({"type":"strin"})", "\"type\" that is no name of a type at #"},
      {R"({"type":"string","minLength":-1})", "\"minLength\" that is no count"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "\"minLength\" above \"maxLength\""},
      {R"({"minimum":3,"maximum":2})", "no number that can be written"},
      {R"({"required":["a"],"additionalProperties":false})", "no finite text"},
      {R"({"a)", "is no JSON: error at byte"},
      {R"({"type":"null","type":"string"})", "has the member \"type\" twice"},
      {"[1]", "neither an object nor a boolean at #"},
      {"false", "no finite text"},
  };
  for (const Refused& c : cases) {
    EXPECT_THAT(Refusal(SchemaSource(c.schema)), HasSubstr(c.problem)) << c.schema;
  }
}

TEST(JsonSchema, AnnotationsSayNothing) {
  Check(
      {{R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","title":"t","description":"d","default":1,"examples":[1],"deprecated":true,"type":"integer"})",
        {"1"},
        {"\"a\""}},
       {"true", {"1", "{}", "\"a\""}, {""}},
       {"{}", {"1", "[]"}, {""}}});
}

TEST(Choices, AreTakenWhole) {
  Acceptor accepts(ChoicesSource({"yes", "yes!", "no", "中文"}));
  for (const char* text : {"yes", "yes!", "no", "中文"}) EXPECT_TRUE(accepts(text)) << text;
  for (const char* text : {"", "ye", "yes!!", "中"}) EXPECT_FALSE(accepts(text)) << text;
  EXPECT_THAT(Refusal(ChoicesSource({})), HasSubstr("has 0 texts; it must have 1 to 4096"));
  EXPECT_THAT(Refusal(ChoicesSource({"a", ""})), HasSubstr("text 1 has 0 bytes"));
  EXPECT_THAT(Refusal(ChoicesSource({"a", "b", "a"})), HasSubstr("text 2 stands there twice"));
  EXPECT_THAT(Refusal(ChoicesSource({"\xFF"})), HasSubstr("text 0 is no valid UTF-8"));
}

}  // namespace
}  // namespace baton::grammar
