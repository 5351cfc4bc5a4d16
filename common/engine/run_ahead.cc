// SPDX-License-Identifier: Apache-2.0
// The step behind the one in flight, started before that one is read: a device finds
// the tokens in its own memory and goes on, and the host looks at them meanwhile.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

// Whether the branch ends, or its phase does, with the token that is chosen now.
bool EndsWithNext(const Sequence& sequence, const Branch& branch) {
  const uint32_t outputs = sequence.outputs(branch) + 1;
  const uint32_t most = sequence.phase_of(branch).max_tokens;
  return outputs >= sequence.spec.max_tokens || (most > 0 && outputs - branch.phase_begin >= most);
}

}  // namespace

// What cannot be started now is planned anew when the step before is read.
std::optional<Engine::Impl::Flight> Engine::Impl::RunAhead() {
  if (queue_ == nullptr || !flight_->status.ok() || trim_to_) return std::nullopt;
  std::optional<std::vector<Row>> rows = PlanAhead();
  if (!rows || rows->empty()) return std::nullopt;
  Flight next = Launch(*std::move(rows));
  if (!next.status.ok()) return std::nullopt;
  ++counters_.steps_ahead;
  for (const Row& row : next.rows) {
    next.owners.emplace_back(row.sequence->arrival, row.of().choice);
  }
  return next;
}

// All that decodes, or nothing: whoever needs more than a token of the step in flight
// waits for a step that is planned when nothing is under way.
std::optional<std::vector<Engine::Impl::Row>> Engine::Impl::PlanAhead() {
  if (table_.Count([](const Sequence& s) { return s.state == State::kPrompt; }) > 0) {
    return std::nullopt;
  }
  // By arrival and choice of a row in flight: which of those it is that the model chooses for.
  absl::flat_hash_map<std::pair<uint64_t, uint32_t>, std::optional<uint32_t>> in_flight;
  uint32_t chosen = 0;
  for (size_t i = 0; i < flight_->rows.size(); ++i) {
    const Row& row = flight_->rows[i];
    const auto owner = flight_->owners.empty() ? std::pair(row.sequence->arrival, row.of().choice)
                                               : flight_->owners[i];
    in_flight[owner] = row.by_model ? std::optional(chosen++) : std::nullopt;
  }
  const absl::Duration per_token = TimePerToken(flight_->shape);
  std::vector<Row> rows;
  for (Sequence* sequence :
       table_.Select([](const Sequence& s) { return s.state == State::kDecoding; })) {
    for (uint32_t i = 0; i < sequence->branches.size(); ++i) {
      Branch& branch = sequence->branches[i];
      Row row{.sequence = sequence, .branch = i, .tokens = 1, .sampled = true};
      if (!MayRunAhead(row, per_token)) return std::nullopt;
      const auto before = in_flight.find({sequence->arrival, branch.choice});
      if (before == in_flight.end()) {
        if (branch.remaining() != 1 || !HasBlocksForNext(branch, pool_)) return std::nullopt;
      } else {
        if (!before->second) return std::nullopt;
        if (EndsWithNext(*sequence, branch)) continue;
        if (!GrowAhead(branch)) return std::nullopt;
        row.follows = before->second;
      }
      rows.push_back(std::move(row));
    }
  }
  if (rows.size() > limits_.max_step_tokens) return std::nullopt;
  return rows;
}

// Its next token must not depend on the last one but through the model. Guesses follow
// from the last token, too: where the text just repeats itself, they are worth more.
bool Engine::Impl::MayRunAhead(const Row& row, absl::Duration per_token) {
  const Sequence& sequence = *row.sequence;
  const Branch& branch = row.of();
  const sampling::Params& params = sequence.phase_of(branch).sampling;
  const bool by_token =
      sequence.spec.constraint != nullptr || params.penalizes() || !sequence.in_last_phase(branch);
  const bool by_words = std::any_of(params.bad_sequences.begin(), params.bad_sequences.end(),
                                    [](const auto& words) { return words.size() > 1; });
  // Behind a window blocks go back as positions pass: not under a step in flight.
  const bool by_place = sequence.spec.window.limited();
  return !by_token && !by_words && !by_place && ModelChooses(row) && !WantsDraft(row, per_token);
}

// The step in flight writes the next position, so that its block, and those behind it in
// the table, are the branch's alone.
bool Engine::Impl::GrowAhead(Branch& branch) {
  if (branch.blocks.size() >= kv::BlocksForTokens(branch.next_end() + 1)) return true;
  const auto block = Allocate(1);
  if (!block.ok()) return false;
  branch.blocks.push_back(block->front());
  return true;
}

void Engine::Impl::FindRowsAgain(Flight& step) {
  if (step.owners.empty()) return;
  absl::flat_hash_map<uint64_t, Sequence*> decoding;
  for (Sequence* sequence :
       table_.Select([](const Sequence& s) { return s.state == State::kDecoding; })) {
    decoding.emplace(sequence->arrival, sequence);
  }
  std::vector<Row> rows;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const auto [arrival, choice] = step.owners[i];
    const auto found = decoding.find(arrival);
    if (found == decoding.end()) continue;
    const auto& branches = found->second->branches;
    for (uint32_t branch = 0; branch < branches.size(); ++branch) {
      if (branches[branch].choice != choice) continue;
      rows.push_back(std::move(step.rows[i]));
      rows.back().sequence = found->second;
      rows.back().branch = branch;
    }
  }
  step.rows = std::move(rows);
}

// Until the step is read nobody else gets the blocks: it may still write into one of
// them. Those that were full before, which the prefix cache may keep, it only reads.
bool Engine::Impl::IsInFlight(const Sequence& sequence, const Branch& branch) const {
  if (!flight_) return false;
  const std::pair owner(sequence.arrival, branch.choice);
  return std::find(flight_->owners.begin(), flight_->owners.end(), owner) != flight_->owners.end();
}

}  // namespace baton::engine
