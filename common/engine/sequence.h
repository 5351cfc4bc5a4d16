// SPDX-License-Identifier: Apache-2.0
// What the engine knows of one sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/engine/engine.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"
#include "common/sampling/token_history.h"

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

struct Sequence {
  SequenceSpec spec;
  State state = State::kQueued;
  uint64_t arrival = 0;  // unique, grows
  absl::Time submitted_at;
  absl::Time queued_at;  // submitted; kReserving: blocks asked for

  uint32_t prompt_tokens = 0;
  std::vector<TokenId> tokens;      // prompt, then output
  sampling::TokenHistory history;   // of `tokens`, when penalties need it
  uint32_t scored = 1;              // prompt tokens whose log-probabilities were told, if wanted
  uint32_t computed = 0;            // positions whose KV stands in the blocks
  std::vector<kv::BlockId> blocks;  // block table; empty until admitted
  bool holds_blocks = false;        // all of them but for dropped ones, as kRequest
  // With a window: entries from the sinks to this one are out of sight for good.
  uint32_t dropped_end = 0;
  uint32_t cached_tokens = 0;  // of the prompt, found at admission
  uint64_t fetched_at = 0;     // the block file had nothing more at this count of blocks
  bool started = false;        // its first chunk has run
  // Blocks [pin_begin, pin_end) are held as kTransfer.
  uint32_t pin_begin = 0, pin_end = 0;

  // Put aside: copies of the blocks of [0, computed), when they were kept.
  std::vector<kv::BlockId> swapped;  // in the swap area
  uint32_t once_computed = 0;        // positions whose KV was dropped since
  absl::Time preempted_at;
  Preemptions preemptions;

  // A sender reads, or a receiver writes, the pinned blocks: HandoffDone,
  // Activate or ReleaseReservation is still to come.
  bool writing = false;
  bool committed = false;   // kPrefill: the sender was told to commit
  Engine::Granted granted;  // kReserving

  // Filled in for the EndOutput.
  absl::Status end_status;
  FinishReason end_reason = FinishReason::kNone;
  bool handed_off = false;
  std::string transport;
  uint64_t handoff_bytes = 0;

  bool dropped(uint32_t index) const {
    return index >= spec.window.sink_blocks() && index < dropped_end;
  }
  uint32_t dropped_blocks() const {
    const uint32_t sinks = spec.window.sink_blocks();
    return dropped_end > sinks ? dropped_end - sinks : 0;
  }
  // Blocks that it holds, once it holds any.
  uint32_t held_blocks() const { return static_cast<uint32_t>(blocks.size()) - dropped_blocks(); }
  // Blocks whose KV is kept when it is swapped.
  uint32_t live_blocks() const { return kv::BlocksForTokens(computed) - dropped_blocks(); }
  // Earlier positions that the next one reads.
  uint32_t attended() const {
    const kv::Window& window = spec.window;
    return window.limited() ? std::min(computed, window.sinks + window.tokens) : computed;
  }
  uint32_t outputs() const { return static_cast<uint32_t>(tokens.size()) - prompt_tokens; }
  // Still to be computed before a token is sampled: of the prompt, and after a
  // preemption of the output as well.
  uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - computed; }
  bool admitted() const {
    return state == State::kPrompt || state == State::kReserved || state == State::kDecoding;
  }
  bool waiting() const {
    return state == State::kQueued || state == State::kExpected || state == State::kReserving ||
           state == State::kPreempted;
  }
};

}  // namespace baton::engine
