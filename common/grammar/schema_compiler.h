// SPDX-License-Identifier: Apache-2.0
// From a schema's tree to rules; a part of RulesOfSchema. Spread over files by
// subject: schema_compiler.cc (combinations), schema_types.cc (values of one
// type), schema_disjoint.cc (oneOf).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar/expr.h"
#include "common/grammar/json_text.h"
#include "common/grammar/json_value.h"
#include "common/grammar/probe.h"

namespace baton::grammar {

// Thread safety: none.
class SchemaCompiler final {
 public:
  // `root` must outlive the compiler.
  explicit SchemaCompiler(const JsonValue* root) : root_(*root) {}

  absl::StatusOr<RuleSet> Compile();

 private:
  using Result = absl::StatusOr<ExprPtr>;

  // schema_compiler.cc
  Result CompileSchema(const JsonValue& schema, const std::string& pointer);
  Result CompileObjectForm(const JsonValue& schema, const std::string& pointer);
  Result CompileReference(const JsonValue& schema, const std::string& pointer);
  Result CompileAllOf(const JsonValue& schema, const std::string& pointer);
  Result CompileAnyOf(const JsonValue& schema, std::string_view keyword,
                      const std::string& pointer);
  Result CompileEnum(const JsonValue& schema, const std::string& pointer);
  absl::Status CheckKeywords(const JsonValue& schema, const std::string& pointer) const;
  absl::StatusOr<uint32_t> RuleOf(const std::string& reference, const std::string& pointer);
  absl::StatusOr<const JsonValue*> Resolve(const std::string& reference,
                                           const std::string& pointer) const;
  ExprPtr AnyValue();
  ExprPtr AnyObject();
  const AnyJson& Any();

  // schema_types.cc
  Result CompileTypes(const JsonValue& schema, const std::string& pointer);
  Result CompileString(const JsonValue& schema, const std::string& pointer);
  Result CompilePattern(std::string_view pattern, bool anchored, std::string_view keyword,
                        const JsonValue& schema, const std::string& pointer);
  Result CompileNumber(const JsonValue& schema, bool integer, const std::string& pointer);
  Result CompileArray(const JsonValue& schema, const std::string& pointer);
  Result CompileObject(const JsonValue& schema, const std::string& pointer);
  struct Property {
    ExprPtr member;  // name, colon, value
    bool required = false;
  };
  absl::StatusOr<std::vector<Property>> PropertiesOf(const JsonValue& schema,
                                                     const std::string& pointer);
  // Members other than the named ones; null: there are none.
  Result OtherMembers(const JsonValue& schema, const std::string& pointer);
  absl::Status CheckPropertyCounts(const JsonValue& schema, size_t required, size_t named,
                                   bool others, const std::string& pointer) const;

  // schema_disjoint.cc
  // Whether nothing that is written for one is valid by the other, as far as is
  // easily seen.
  bool Disjoint(const JsonValue& a, const JsonValue& b, int depth) const;
  bool DisjointObjects(const JsonValue& a, const JsonValue& b, int depth) const;
  const JsonValue& Followed(const JsonValue& schema) const;

  const JsonValue& root_;
  RuleSet rules_;
  std::map<std::string, uint32_t> by_pointer_;
  std::optional<AnyJson> any_;
  int depth_ = 0;
  int work_ = 0;
  int64_t probe_budget_ = kProbeBudget;
};

}  // namespace baton::grammar
