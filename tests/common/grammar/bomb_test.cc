// SPDX-License-Identifier: Apache-2.0
// Sources made to cost time or memory: all are refused, or compiled, in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/grammar/acceptance.h"

namespace baton::grammar {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// In a build for speed; sanitizers and debug builds are slower.
constexpr double kMostMs = BATON_SANITIZED ? 5000 : 100;

// Of this thread: other processes of a busy machine do not count.
double CpuMs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

std::string TimedRefusal(const Source& source) {
  const double start = CpuMs();
  std::string refusal = Refusal(source);
  EXPECT_LT(CpuMs() - start, kMostMs) << refusal << " for " << source.text.substr(0, 100);
  return refusal;
}

std::string Repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Bomb, DeeplyNestedSchemaTextIsRefused) {
  const std::string open = Repeated(R"({"items":)", 20000);
  EXPECT_THAT(TimedRefusal(SchemaSource(open + "{}" + Repeated("}", 20000))),
              HasSubstr("nested deeper than 64"));
  EXPECT_THAT(TimedRefusal(SchemaSource(Repeated("[", 200000))), HasSubstr("nested deeper"));
}

TEST(Bomb, HugeCountsAreRefusedByName) {
  EXPECT_EQ(TimedRefusal(SchemaSource(R"({"type":"array","minItems":1000000000})")),
            "\"minItems\" of 1000000000; the limit is 65535, at #");
  EXPECT_THAT(
      TimedRefusal(SchemaSource(R"({"properties":{"a":{"type":"string","maxLength":1e18}}})")),
      HasSubstr("\"maxLength\" of 1e18; the limit is 65535, at #/properties/a"));
  EXPECT_THAT(TimedRefusal(RegexSource("a{99999999999999999999}")), HasSubstr("more than 65535"));
}

TEST(Bomb, ProductsOfCountsAreRefused) {
  EXPECT_THAT(TimedRefusal(RegexSource("((((a{1000}){1000}){1000}){1000}){1000}")),
              HasSubstr("shortest text has"));
  EXPECT_THAT(
      TimedRefusal(SchemaSource(
          R"({"type":"array","minItems":60000,"items":{"type":"string","minLength":60000}})")),
      HasSubstr("shortest text has"));
}

TEST(Bomb, AmbiguousCountsAreRefused) {
  for (const char* pattern :
       {"(a|aa){1,5000}", "[ab]*a[ab]{1000}", "(.*a){1000}", "((a{0,1000}){0,1000}){0,1000}",
        "(\\w*a){300}", "(a?){5000}(a?){5000}", "(x+x+){900}y"}) {
    EXPECT_THAT(TimedRefusal(RegexSource(pattern)),
                AnyOf(HasSubstr("too many readings"), HasSubstr("more than")))
        << pattern;
  }
}

TEST(Bomb, AmbiguousPatternsInsideOfSchemasAreRefusedWithTheirPlace) {
  EXPECT_THAT(
      TimedRefusal(SchemaSource(
          R"({"properties":{"x":{"type":"string"},"y":{"pattern":"^[ab]*a[ab]{1000}$"}}})")),
      HasSubstr("#/properties/y"));
}

TEST(Bomb, CyclesOfReferencesAreRefused) {
  EXPECT_THAT(TimedRefusal(SchemaSource(R"({"$ref":"#"})")), HasSubstr("refers to itself"));
  EXPECT_THAT(
      TimedRefusal(SchemaSource(
          R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"null"}]},"b":{"$ref":"#/$defs/a"}}})")),
      HasSubstr("refers to itself"));
  EXPECT_THAT(TimedRefusal(SchemaSource(R"({"allOf":[{"$ref":"#"}]})")), Not(IsEmpty()));
  EXPECT_THAT(
      TimedRefusal(SchemaSource(
          R"({"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}})")),
      Not(IsEmpty()));
  EXPECT_THAT(TimedRefusal(SchemaSource(
                  R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})")),
              HasSubstr("no finite text"));
}

TEST(Bomb, SharedReferencesDoNotMultiply) {
  std::string defs = R"("d0":{"type":"string"})";
  for (int i = 1; i < 60; ++i) {
    absl::StrAppend(&defs, R"(,"d)", i, R"(":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/d)",
                    i - 1, R"("},{"type":"array","items":{"$ref":"#/$defs/d)", i - 1, R"("}}]}})");
  }
  const std::string schema = absl::StrCat(R"({"$ref":"#/$defs/d59","$defs":{)", defs, "}}");
  EXPECT_THAT(TimedRefusal(SchemaSource(schema)),
              AnyOf(IsEmpty(), HasSubstr("nested"), HasSubstr("depth"), HasSubstr("deep")));
}

TEST(Bomb, MergedReferencesThatUnfoldAreRefused) {
  std::string defs = R"("d0":{"type":"object"})";
  for (int i = 1; i < 40; ++i) {
    const std::string part =
        absl::StrCat(R"({"$ref":"#/$defs/d)", i - 1, R"(","title":"x","minProperties":0})");
    absl::StrAppend(&defs, R"(,"d)", i, R"(":{"properties":{"a":)", part, R"(,"b":)", part, "}}");
  }
  const std::string schema =
      absl::StrCat(R"({"$ref":"#/$defs/d39","maxProperties":9,"$defs":{)", defs, "}}");
  EXPECT_THAT(TimedRefusal(SchemaSource(schema)), Not(IsEmpty()));
}

TEST(Bomb, VeryWideSchemasTakeNoLonger) {
  std::string properties, numbers;
  for (int i = 0; i < 6000; ++i) {
    absl::StrAppend(&properties, i == 0 ? "" : ",", R"("property)", i, R"(":{"type":"integer"})");
    absl::StrAppend(&numbers, i == 0 ? "" : ",", R"("value number )", i, "\"");
  }
  TimedRefusal(SchemaSource(absl::StrCat(R"({"properties":{)", properties, "}}")));
  EXPECT_EQ(TimedRefusal(SchemaSource(absl::StrCat(R"({"enum":[)", numbers, "]}"))), "");
  TimedRefusal(SchemaSource(absl::StrCat(R"({"not":[)", numbers, "]}")));
  EXPECT_THAT(TimedRefusal(SchemaSource(std::string(300000, ' '))),
              HasSubstr("the limit is 262144"));
}

TEST(Bomb, ManyClassesOfCharactersAreRefused) {
  EXPECT_THAT(TimedRefusal(RegexSource(Repeated("\\W\\D", 2000))), HasSubstr("more than"));
  EXPECT_THAT(TimedRefusal(RegexSource(Repeated("[^\\w\\d]{3,9}", 600))), HasSubstr("more than"));
  EXPECT_THAT(TimedRefusal(RegexSource(Repeated("(", 4000) + Repeated(")", 4000))),
              HasSubstr("deep"));
  EXPECT_THAT(TimedRefusal(RegexSource(Repeated("a|", 4000) + "b")), IsEmpty());
  EXPECT_THAT(TimedRefusal(RegexSource(Repeated("(a|b)?", 1300))), Not(HasSubstr("crash")));
}

TEST(Bomb, ManyOneOfPartsAreRefusedInTime) {
  std::string parts;
  for (int i = 0; i < 2000; ++i) {
    absl::StrAppend(&parts, i == 0 ? "" : ",", R"({"const":)", i, "}");
  }
  TimedRefusal(SchemaSource(absl::StrCat(R"({"oneOf":[)", parts, "]}")));
}

}  // namespace
}  // namespace baton::grammar
