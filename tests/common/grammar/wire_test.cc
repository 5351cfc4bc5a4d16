// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::grammar {
namespace {

using ::testing::HasSubstr;

TEST(ConstraintWire, EachFieldBecomesItsSource) {
  v1::Constraint wire;
  wire.set_json(v1::Constraint::JSON_TEXT_VALUE);
  EXPECT_EQ(SourceFromWire(wire)->kind, SourceKind::kAnyValue);
  wire.set_json(v1::Constraint::JSON_TEXT_OBJECT);
  EXPECT_EQ(SourceFromWire(wire)->kind, SourceKind::kAnyObject);
  wire.Clear();
  wire.set_json_schema("{}");
  EXPECT_EQ(SourceFromWire(wire)->text, "{}");
  EXPECT_STREQ(FieldOf(SourceFromWire(wire)->kind), "json_schema");
  wire.Clear();
  wire.set_regex("");
  EXPECT_EQ(SourceFromWire(wire)->kind, SourceKind::kRegex);
  wire.Clear();
  wire.add_choices("a");
  wire.add_choices("b");
  EXPECT_EQ(SourceFromWire(wire)->choices.size(), 2u);
}

TEST(ConstraintWire, NoneOrSeveralFieldsAreNamed) {
  v1::Constraint wire;
  EXPECT_THAT(std::string(SourceFromWire(wire).status().message()), HasSubstr("is empty"));
  wire.set_json_schema("{}");
  wire.set_regex("a");
  EXPECT_THAT(std::string(SourceFromWire(wire).status().message()),
              HasSubstr("has json_schema and regex set"));
  wire.Clear();
  wire.set_json(static_cast<v1::Constraint::JsonText>(7));
  EXPECT_THAT(std::string(SourceFromWire(wire).status().message()), HasSubstr("json is 7"));
}

}  // namespace
}  // namespace baton::grammar
