// SPDX-License-Identifier: Apache-2.0
// What the engine knows of one sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/engine/engine.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"
#include "common/sampling/beam_search.h"
#include "common/sampling/token_history.h"
#include "common/speculation/draft_policy.h"
#include "common/speculation/prompt_lookup.h"

namespace baton::engine {

// kPrefill: kQueued, kPrompt, kHandingOff.
// kWhole:   kQueued, kPrompt, kDecoding.
// kDecode:  kExpected, kReserving, kReserved, kDecoding.
// From kPrompt and kDecoding of the latter two to kPreempted, and from there to
// kPrompt (its KV is computed again) or kDecoding (it was swapped in).
// From each of them to kEnding, which a sequence leaves once no writer can
// touch its blocks any more; mostly at once.
enum class State : uint8_t {
  kQueued,      // waits for blocks and a seat
  kPrompt,      // admitted; tokens are still to be computed before one is sampled
  kHandingOff,  // token 0 is out; waits for the sender to let go of the blocks
  kExpected,    // nobody has asked for the hand-off's blocks yet
  kReserving,   // asked for; waits for blocks and a seat
  kReserved,    // admitted; the hand-off's blocks are being written
  kDecoding,    // in every step for which it has a block
  kPreempted,   // put aside: holds no blocks and waits for some
  kEnding,      // over; a writer may still touch its blocks
};

// A line of tokens of a sequence: an answer, or a beam. Until the first token is
// sampled there is one.
struct Branch {
  uint32_t choice = 0;
  bool ended = false;               // in this step; holds nothing
  std::vector<TokenId> tokens;      // prompt, then output
  sampling::TokenHistory history;   // of `tokens`, when penalties need it
  grammar::Cursor cursor;           // how far the constraint has followed the output
  uint32_t computed = 0;            // positions whose KV stands in the blocks
  std::vector<kv::BlockId> blocks;  // block table; empty until admitted
  // With a window: entries below this one are out of sight for good, but for those
  // that it keeps.
  uint32_t dropped_end = 0;
  uint32_t once_computed = 0;  // positions whose KV was dropped since
  uint32_t phase = 0;          // of the spec's
  uint32_t phase_begin = 0;    // its first index in the output
  // What it has said before, and how well guesses from that did.
  struct Drafts {
    speculation::PromptLookup lookup;
    speculation::DraftRecord record;
  };
  std::optional<Drafts> drafts;  // once one is wanted

  // Tokens that are not computed.
  uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - computed; }
  // Positions that the next step computes, one more where that is all.
  uint32_t next_end() const { return std::max(computed + 1, computed + remaining() - 1); }
};

struct Sequence {
  SequenceSpec spec;  // phases filled in
  State state = State::kQueued;
  uint64_t arrival = 0;  // unique, grows
  absl::Time submitted_at;
  absl::Time queued_at;  // submitted; kReserving: blocks asked for

  uint32_t prompt_tokens = 0;
  std::vector<Branch> branches;  // at least one until it ends
  bool forked = false;           // the first tokens are out
  // kPrompt of several branches: the first one computes so many tokens, which all
  // have in common, and the others go on from there.
  uint32_t fork_at = 0;
  std::optional<sampling::BeamSearch> search;  // in a beam phase, forked
  absl::btree_set<uint32_t> cancelled;         // choices that nobody wants
  absl::Status failure;                        // in this step
  std::optional<absl::Time> first_step;
  bool stepped = false;  // kDecode: it was told when that was

  uint32_t scored = 1;         // prompt tokens whose log-probabilities were told, if wanted
  bool holds_blocks = false;   // of all branches but for dropped ones, as kRequest
  uint32_t cached_tokens = 0;  // of the prompt, found at admission
  uint64_t fetched_at = 0;     // the block file had nothing more at this count of blocks
  bool started = false;        // its first chunk has run
  // Blocks [pin_begin, pin_end) of the trunk that move are held as kTransfer.
  uint32_t pin_begin = 0, pin_end = 0;

  // Put aside: copies of the distinct blocks of [0, computed) of all branches,
  // when they were kept; block tables hold indices into it meanwhile.
  std::vector<kv::BlockId> swapped;  // in the swap area
  absl::Time preempted_at;
  Preemptions preemptions;
  Speculation speculation;
  bool recompute = false;  // something that is no number stands behind a last position

  // A sender reads, or a receiver writes, the pinned blocks: HandoffDone,
  // Activate or ReleaseReservation is still to come.
  bool writing = false;
  bool committed = false;   // kPrefill: the sender was told to commit
  HandoffState handoff;     // kPrefill: what it is told
  Engine::Granted granted;  // kReserving

  // Filled in for the EndOutput.
  absl::Status end_status;
  FinishReason end_reason = FinishReason::kNone;
  bool handed_off = false;
  std::string transport;
  uint64_t handoff_bytes = 0;

  // The one branch before the fork.
  Branch& trunk() { return branches.front(); }
  const Branch& trunk() const { return branches.front(); }

  const PhaseSpec& phase_of(const Branch& branch) const { return spec.phases[branch.phase]; }
  bool in_last_phase(const Branch& branch) const { return branch.phase + 1 == spec.phases.size(); }
  // Branches that go on together, or will.
  bool several() const { return branches.size() > 1 || search.has_value(); }
  bool dropped(const Branch& branch, uint32_t index) const {
    return index < branch.dropped_end && !spec.window.Keeps(index);
  }
  uint32_t dropped_blocks(const Branch& branch) const {
    return branch.dropped_end - spec.window.KeptBelow(branch.dropped_end);
  }
  // Of the prompt's blocks a hand-off moves those that the position behind it sees:
  // whether `index` is one, how many come before it, and those of [begin, end).
  bool moves(uint32_t index) const { return spec.window.SeesBlock(prompt_tokens, index); }
  uint32_t moved_before(uint32_t index) const {
    return spec.window.SeenBelow(prompt_tokens, index);
  }
  std::vector<kv::BlockId> moving_blocks(uint32_t begin, uint32_t end) const;
  // Distinct blocks that it holds, once it holds any; of [0, computed) alone.
  uint32_t held_blocks() const;
  uint32_t live_blocks() const;
  // Blocks that the next token of each branch takes beside the live ones, those
  // that are copied because another branch holds them too among them.
  uint32_t new_blocks() const;
  // First tokens that are the same in all branches, the last of each left out.
  uint32_t common_tokens() const;
  // Earlier positions that the branch's next one reads.
  uint32_t attended(const Branch& branch) const {
    if (!spec.window.limited()) return branch.computed;
    return std::min(branch.computed, spec.window.SeenBlocks(branch.computed) * kv::kBlockTokens);
  }
  uint32_t outputs(const Branch& branch) const {
    return static_cast<uint32_t>(branch.tokens.size()) - prompt_tokens;
  }
  // kPrompt, or on the way there: still to be computed before it goes on.
  uint32_t remaining() const {
    return fork_at > 0 ? fork_at - trunk().computed : trunk().remaining();
  }
  // Rows of a step that it takes, or will take.
  uint32_t seats() const {
    if (spec.role == Role::kPrefill) return 1;
    return search || !forked ? spec.width() : static_cast<uint32_t>(branches.size());
  }
  bool admitted() const {
    return state == State::kPrompt || state == State::kReserved || state == State::kDecoding;
  }
  bool waiting() const {
    return state == State::kQueued || state == State::kExpected || state == State::kReserving ||
           state == State::kPreempted;
  }
};

// Whether the block of the next position is held by another branch, or by the
// prefix cache: a branch that goes back to where a search had been may stand in
// the middle of a block that was full.
bool WritesShared(const Branch& branch, const kv::BlockPool& pool);
// Whether the branch has what its next positions are written into, for itself alone.
bool HasBlocksForNext(const Branch& branch, const kv::BlockPool& pool);

}  // namespace baton::engine
