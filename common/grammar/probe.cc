// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/probe.h"

#include "absl/container/flat_hash_set.h"
#include "common/grammar/automaton.h"

namespace baton::grammar {
namespace {

constexpr int kSteps = 512;

}  // namespace

absl::Status Probe(const Program& program, int64_t* budget) {
  Automaton automaton(&program, {});
  absl::flat_hash_set<StateId> seen;
  StateId state = automaton.start();
  for (int step = 0; step<kSteps&& * budget> 0; ++step) {
    seen.insert(state);
    StateId best = Automaton::kDead;
    for (const uint8_t byte : automaton.FirstBytes(state)) {
      *budget -= automaton.places(state) + 1;
      const StateId next = automaton.Next(state, byte);
      if (next == Automaton::kTooMany) {
        return absl::ResourceExhaustedError(
            "it allows too many readings of one text at once; make it less ambiguous");
      }
      if (!seen.contains(next) && automaton.places(next) > automaton.places(best)) best = next;
    }
    if (best == Automaton::kDead) break;
    state = best;
  }
  return absl::OkStatus();
}

}  // namespace baton::grammar
