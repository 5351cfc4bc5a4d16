// SPDX-License-Identifier: Apache-2.0
// A grammar as a nondeterministic automaton over bytes, with a stack for rules
// and counted repeats.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar/expr.h"

namespace baton::grammar {

enum class Op : uint8_t {
  kBytes,   // edges [begin, end): takes a byte
  kSplit,   // targets [begin, end): goes on at each of them
  kCall,    // runs the rule whose first node is `begin`, then goes on at `end`
  kRepeat,  // runs loop `begin`
  kEnd,     // end of a rule, or of a loop's body
};

struct Node {
  Op op = Op::kEnd;
  uint32_t begin = 0, end = 0;
};

struct Edge {
  uint8_t first = 0, last = 0;
  uint32_t target = 0;
};

// `body` is run `min` to `max` times, at least once; then `next`. The body
// takes a byte or more.
struct Loop {
  uint32_t body = 0, next = 0;
  uint32_t min = 0, max = 0;  // max may be kNoLimit
};

// No text this long is ever needed.
inline constexpr uint32_t kUnreachable = UINT32_MAX;

// Immutable, so thread-safe.
struct Program {
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<uint32_t> targets;
  std::vector<Loop> loops;
  uint32_t start = 0;

  // Bytes that no edge tells apart have one class.
  std::array<uint8_t, 256> byte_class = {};
  uint32_t classes = 0;

  // [node]: bytes of the shortest way to the end of its rule or loop body;
  // kUnreachable: there is none.
  std::vector<uint32_t> least_bytes;
  // [node]: calls that must be open at once on the way there, at least.
  std::vector<uint32_t> least_depth;
};

struct ProgramLimits {
  uint32_t nodes = 32768;  // and edges
  uint32_t least_bytes = 1 << 20;
  uint32_t depth = 64;
};

// INVALID_ARGUMENT: the grammar matches no finite text, or none within the
// limits; a rule reaches itself without taking a byte. RESOURCE_EXHAUSTED: it
// is too large. Takes milliseconds at most.
// REQUIRES: no rule but the start matches the empty text.
absl::StatusOr<Program> MakeProgram(const RuleSet& rules, const ProgramLimits& limits = {});

}  // namespace baton::grammar
