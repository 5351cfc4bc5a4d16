// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/program.h"

#include <algorithm>
#include <bitset>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/lowering.h"

namespace baton::grammar {
namespace {

// Rounds over all nodes; chains of rules that call backwards need one each.
constexpr int kMostRounds = 64;

void SetByteClasses(Program& program) {
  std::bitset<257> starts;
  starts.set(0);
  for (const Edge& edge : program.edges) {
    starts.set(edge.first);
    starts.set(edge.last + size_t{1});
  }
  uint32_t current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && starts.test(byte)) ++current;
    program.byte_class[byte] = static_cast<uint8_t>(current);
  }
  program.classes = current + 1;
}

// Sums and products stay below what says that there is none.
uint32_t Clipped(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, kUnreachable - 1));
}

uint32_t Plus(uint32_t a, uint32_t b) {
  return a == kUnreachable || b == kUnreachable ? kUnreachable : Clipped(uint64_t{a} + b);
}

uint32_t Times(uint32_t a, uint32_t b) {
  return a == kUnreachable ? kUnreachable : Clipped(uint64_t{a} * b);
}

// What is to be found for each node: the least of its ways to the end.
struct LeastBytes {
  uint32_t OfByte(uint32_t target) const { return Plus(1, target); }
  uint32_t OfCall(uint32_t rule, uint32_t after) const { return Plus(rule, after); }
  uint32_t OfLoop(const Loop& loop, uint32_t body, uint32_t after) const {
    return Plus(Times(body, std::max(loop.min, 1u)), after);
  }
};

struct LeastDepth {
  uint32_t OfByte(uint32_t target) const { return target; }
  uint32_t OfCall(uint32_t rule, uint32_t after) const { return std::max(Plus(1, rule), after); }
  uint32_t OfLoop(const Loop& /*loop*/, uint32_t body, uint32_t after) const {
    return std::max(body, after);
  }
};

template <typename Measure>
uint32_t LeastOf(const Program& program, const Node& node, const Measure& measure,
                 const std::vector<uint32_t>& least) {
  uint32_t best = kUnreachable;
  switch (node.op) {
    case Op::kEnd:
      return 0;
    case Op::kBytes:
      for (uint32_t i = node.begin; i < node.end; ++i) {
        const uint32_t target = least[program.edges[i].target];
        if (target != kUnreachable) best = std::min(best, measure.OfByte(target));
      }
      return best;
    case Op::kSplit:
      for (uint32_t i = node.begin; i < node.end; ++i) {
        best = std::min(best, least[program.targets[i]]);
      }
      return best;
    case Op::kCall:
      return measure.OfCall(least[node.begin], least[node.end]);
    case Op::kRepeat: {
      const Loop& loop = program.loops[node.begin];
      return measure.OfLoop(loop, least[loop.body], least[loop.next]);
    }
  }
  return best;
}

// The least fixed point, from above: values only fall.
template <typename Measure>
absl::StatusOr<std::vector<uint32_t>> Solve(const Program& program, const Measure& measure) {
  std::vector<uint32_t> least(program.nodes.size(), kUnreachable);
  for (int round = 0; round < kMostRounds; ++round) {
    bool changed = false;
    for (size_t i = 0; i < program.nodes.size(); ++i) {
      const uint32_t value = LeastOf(program, program.nodes[i], measure, least);
      changed |= value != least[i];
      least[i] = value;
    }
    if (!changed) return least;
  }
  return absl::ResourceExhaustedError("its rules refer to one another in too long chains");
}

// Whether a rule reaches itself before a byte is taken: such a rule would be
// entered without end.
class CallCycles {
 public:
  explicit CallCycles(const Program& program)
      : program_(program),
        state_(program.nodes.size(), State::kNew),
        calls_before_(program.nodes.size(), 0) {}

  bool Found() {
    for (uint32_t node = 0; node < program_.nodes.size(); ++node) {
      if (IsCall(node) && Visit(node)) return true;
    }
    return false;
  }

 private:
  enum class State : uint8_t { kNew, kOpen, kDone };
  struct Visited {
    uint32_t node;
    bool leave;
  };

  bool IsCall(uint32_t node) const { return program_.nodes[node].op == Op::kCall; }

  // Depth first, with a stack of its own.
  bool Visit(uint32_t root) {
    std::vector<Visited> stack{{root, false}};
    while (!stack.empty()) {
      const Visited top = stack.back();
      stack.pop_back();
      if (top.leave) {
        state_[top.node] = State::kDone;
        if (IsCall(top.node)) --open_calls_;
        continue;
      }
      if (state_[top.node] == State::kDone) continue;
      if (state_[top.node] == State::kOpen) {
        // Heads of loops are met again as well, but with no call in between.
        if (open_calls_ > calls_before_[top.node]) return true;
        continue;
      }
      state_[top.node] = State::kOpen;
      calls_before_[top.node] = open_calls_;
      if (IsCall(top.node)) ++open_calls_;
      stack.push_back({top.node, true});
      PushFollowing(program_.nodes[top.node], stack);
    }
    return false;
  }

  void PushFollowing(const Node& node, std::vector<Visited>& stack) const {
    if (node.op == Op::kSplit) {
      for (uint32_t i = node.begin; i < node.end; ++i) {
        stack.push_back({program_.targets[i], false});
      }
    } else if (node.op == Op::kCall) {
      stack.push_back({node.begin, false});
    } else if (node.op == Op::kRepeat) {
      stack.push_back({program_.loops[node.begin].body, false});
    }
  }

  const Program& program_;
  std::vector<State> state_;
  std::vector<uint32_t> calls_before_;
  uint32_t open_calls_ = 0;
};

absl::Status CheckStart(const Program& program, const ProgramLimits& limits) {
  const uint32_t bytes = program.least_bytes[program.start];
  if (bytes == kUnreachable) return absl::InvalidArgumentError("no finite text matches it");
  if (bytes > limits.least_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("its shortest text has ", bytes, " bytes; the limit is ", limits.least_bytes));
  }
  const uint32_t depth = program.least_depth[program.start];
  if (depth > limits.depth) {
    return absl::InvalidArgumentError(absl::StrCat("its texts are nested ", depth,
                                                   " deep or deeper; the limit is ", limits.depth));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> MakeProgram(const RuleSet& rules, const ProgramLimits& limits) {
  Program program;
  BATON_RETURN_IF_ERROR(Lowering(rules, limits.nodes, &program).Run());
  if (CallCycles(program).Found()) {
    return absl::InvalidArgumentError("it refers to itself before anything of the text");
  }
  SetByteClasses(program);
  BATON_ASSIGN_OR_RETURN(program.least_bytes, Solve(program, LeastBytes()));
  BATON_ASSIGN_OR_RETURN(program.least_depth, Solve(program, LeastDepth()));
  BATON_RETURN_IF_ERROR(CheckStart(program, limits));
  return program;
}

}  // namespace baton::grammar
