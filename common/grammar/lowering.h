// SPDX-License-Identifier: Apache-2.0
// From trees to nodes; a part of MakeProgram.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/grammar/program.h"

namespace baton::grammar {

// Builds nodes from the end of a text to its start: each part is given the node
// to go on at, so no node is touched again but the heads of loops without a
// count.
// Thread safety: none.
class Lowering final {
 public:
  Lowering(const RuleSet& rules, uint32_t most_nodes, Program* program);

  // All rules. RESOURCE_EXHAUSTED when there are more nodes than allowed.
  absl::Status Run();

 private:
  uint32_t Lower(const ExprPtr& expr, uint32_t next);
  uint32_t LowerNew(const ExprPtr& expr, uint32_t next);
  uint32_t LowerText(const std::string& text, uint32_t next);
  uint32_t LowerClass(const CharSet& set, uint32_t next);
  uint32_t LowerSequences(std::span<const ByteSequence> sequences, uint32_t at, uint32_t next);
  uint32_t LowerChoice(const std::vector<ExprPtr>& parts, uint32_t next);
  uint32_t LowerTexts(std::span<const std::string> texts, size_t at, uint32_t next);
  uint32_t LowerRepeat(const Expr& repeat, uint32_t next);
  uint32_t LowerFew(const Expr& repeat, uint32_t next);
  uint32_t LowerEndless(const ExprPtr& body, uint32_t next, bool may_skip);
  uint32_t LowerCounted(const Expr& repeat, uint32_t next);

  bool Nullable(const ExprPtr& expr);
  // The same texts but for the empty one.
  ExprPtr WithoutEmpty(const ExprPtr& expr);

  uint32_t Add(Node node);
  uint32_t AddBytes(std::vector<Edge> edges);
  // A node that goes on at each of `nodes`.
  uint32_t AddUnion(std::vector<uint32_t> nodes);
  Node UnionOf(const std::vector<uint32_t>& nodes);
  void Flatten(uint32_t node, std::vector<uint32_t>& flat) const;
  bool full() const;

  const RuleSet& rules_;
  const uint32_t most_nodes_;
  Program* const program_;
  uint32_t end_ = 0;
  std::vector<uint32_t> entries_;  // [rule]
  std::map<std::pair<const Expr*, uint32_t>, uint32_t> lowered_;
  std::map<std::pair<std::string, uint32_t>, uint32_t> tails_;  // of characters
  std::unordered_map<const Expr*, bool> nullable_;
  std::vector<ExprPtr> made_;  // keeps what `lowered_` points to
};

}  // namespace baton::grammar
