// SPDX-License-Identifier: Apache-2.0
// A program made deterministic as far as it is used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/program.h"

namespace baton::grammar {

using StateId = uint32_t;

// A state is a set of places in the program, each with its own stack. States
// are found when a byte leads there, and numbered; what is known of their
// successors is kept.
//
// Thread safety: none.
class Automaton final {
 public:
  // Nothing can follow.
  static constexpr StateId kDead = 0;
  // More alternatives than allowed: the text cannot be followed any further.
  static constexpr StateId kTooMany = 1;

  struct Limits {
    uint32_t places = 192;  // of a state
    uint32_t depth = 64;    // calls open at once
  };

  // `program` must outlive the automaton.
  Automaton(const Program* program, const Limits& limits);

  StateId start() const { return start_; }
  StateId Next(StateId state, uint8_t byte) {
    const StateId known = next_[size_t{state} * program_.classes + program_.byte_class[byte]];
    return known != kUnknown ? known : FindNext(state, program_.byte_class[byte]);
  }

  // The text may end here.
  bool Accepts(StateId state) const { return states_[state].accepts; }
  // Nothing may follow.
  bool IsFinal(StateId state) const { return states_[state].places == 0; }
  uint32_t places(StateId state) const { return states_[state].places; }
  // Bytes of the shortest way to the text's end.
  uint32_t least_bytes(StateId state) const { return states_[state].least_bytes; }

  // Bytes that lead to all states where the most alternatives meet, and to more.
  std::vector<uint8_t> FirstBytes(StateId state) const;

  // A state from which the next `horizon` bytes may be the same as from
  // `state`, and lead to the same: one for many counts of a repeat.
  StateId Representative(StateId state, uint32_t horizon);

  uint32_t size() const { return static_cast<uint32_t>(states_.size()); }
  // Of everything found so far.
  size_t bytes() const;

 private:
  static constexpr StateId kUnknown = UINT32_MAX;
  static constexpr uint32_t kBottom = 0;  // the empty stack

  // What goes on where a rule or a loop's body ends.
  struct Frame {
    uint32_t below = kBottom;
    uint32_t site = 0;   // node to return to, or the loop's number
    bool loop = false;   // of a repeat
    uint32_t count = 0;  // turns done
    friend bool operator==(const Frame&, const Frame&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Frame& f) {
      return H::combine(std::move(h), f.below, f.site, f.loop, f.count);
    }
  };
  struct FrameInfo {
    uint32_t depth = 0;        // calls in it and below
    uint32_t least_bytes = 0;  // from the end of its rule or body to the text's end
  };
  struct Place {
    uint32_t node = 0, stack = kBottom;
    friend bool operator==(const Place&, const Place&) = default;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct State {
    size_t first_place = 0;  // in places_
    uint32_t places = 0;
    uint32_t least_bytes = 0;
    StateId representative = kUnknown;
    bool accepts = false;
  };

  StateId FindNext(StateId state, uint8_t byte_class);
  // Follows what takes no byte; collects places that do.
  void Enter(uint32_t node, uint32_t stack);
  void Leave(uint32_t stack);
  // The state of what was collected; `accepts`: the text may end in it anyway.
  StateId Collected(bool accepts = false);
  uint32_t Push(const Frame& frame);
  uint32_t RepresentativeStack(uint32_t stack, uint32_t horizon);
  uint32_t LeastBytes(const Place& place) const;

  const Program& program_;
  const Limits limits_;
  std::vector<uint8_t> class_byte_;  // [class]: a byte of it
  StateId start_ = kDead;

  std::vector<State> states_;
  std::vector<Place> places_;
  std::vector<StateId> next_;  // [state, class]
  absl::flat_hash_map<uint64_t, std::vector<StateId>> by_hash_;
  std::vector<Frame> frames_;
  std::vector<FrameInfo> frame_infos_;
  absl::flat_hash_map<Frame, uint32_t> frame_ids_;

  // While a state is collected.
  std::vector<Place> pending_, visited_, collected_;
  bool collected_accepts_ = false, too_many_ = false;
};

}  // namespace baton::grammar
