// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/automaton.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/hash/hash.h"

namespace baton::grammar {
namespace {

uint32_t CappedSum(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>(std::min<uint64_t>(a + b, kUnreachable - 1));
}

// Turns of a repeat that begin or end within `horizon` bytes, at most.
uint64_t TurnsWithin(uint32_t horizon, uint32_t least_body) {
  return uint64_t{1} + horizon / std::max(least_body, 1u);
}

}  // namespace

Automaton::Automaton(const Program* program, const Limits& limits)
    : program_(*program), limits_(limits), class_byte_(program->classes) {
  for (int byte = 255; byte >= 0; --byte) {
    class_byte_[program_.byte_class[byte]] = static_cast<uint8_t>(byte);
  }
  frames_.emplace_back();  // kBottom
  frame_infos_.emplace_back();
  states_.resize(2);  // kDead and kTooMany
  for (State& state : states_) state.least_bytes = kUnreachable;
  next_.assign(size_t{2} * program_.classes, kDead);
  std::fill(next_.begin() + program_.classes, next_.end(), kTooMany);
  states_[kDead].representative = kDead;
  states_[kTooMany].representative = kTooMany;
  pending_.push_back({program_.start, kBottom});
  start_ = Collected();
}

StateId Automaton::FindNext(StateId state, uint8_t byte_class) {
  const uint8_t byte = class_byte_[byte_class];
  for (uint32_t i = 0; i < states_[state].places; ++i) {
    const Place place = places_[states_[state].first_place + i];
    const Node& node = program_.nodes[place.node];
    for (uint32_t e = node.begin; e < node.end; ++e) {
      const Edge& edge = program_.edges[e];
      if (edge.first <= byte && byte <= edge.last) pending_.push_back({edge.target, place.stack});
    }
  }
  const StateId next = Collected();
  next_[size_t{state} * program_.classes + byte_class] = next;
  return next;
}

StateId Automaton::Collected(bool accepts) {
  visited_.clear();
  collected_.clear();
  collected_accepts_ = accepts;
  too_many_ = false;
  const size_t most_visited = size_t{4} * limits_.places + 64;
  while (!pending_.empty() && !too_many_) {
    const Place place = pending_.back();
    pending_.pop_back();
    Enter(place.node, place.stack);
    too_many_ |= collected_.size() > limits_.places || visited_.size() > most_visited;
  }
  pending_.clear();
  if (too_many_) return kTooMany;
  std::sort(collected_.begin(), collected_.end());
  collected_.erase(std::unique(collected_.begin(), collected_.end()), collected_.end());
  if (collected_.empty() && !collected_accepts_) return kDead;

  uint64_t hash = collected_accepts_ ? 1 : 0;
  for (const Place& place : collected_) hash = absl::HashOf(hash, place.node, place.stack);
  std::vector<StateId>& same_hash = by_hash_[hash];
  for (StateId id : same_hash) {
    const State& state = states_[id];
    const auto* first = places_.data() + state.first_place;
    if (state.accepts == collected_accepts_ &&
        std::equal(first, first + state.places, collected_.begin(), collected_.end())) {
      return id;
    }
  }
  State state;
  state.first_place = places_.size();
  state.places = static_cast<uint32_t>(collected_.size());
  state.accepts = collected_accepts_;
  state.least_bytes = collected_accepts_ ? 0 : kUnreachable;
  for (const Place& place : collected_) {
    state.least_bytes = std::min(state.least_bytes, LeastBytes(place));
  }
  places_.insert(places_.end(), collected_.begin(), collected_.end());
  next_.resize(next_.size() + program_.classes, kUnknown);
  states_.push_back(state);
  same_hash.push_back(static_cast<StateId>(states_.size() - 1));
  return same_hash.back();
}

void Automaton::Enter(uint32_t at, uint32_t stack) {
  // Out of reach: no end, or none within the depth that is left.
  if (program_.least_bytes[at] == kUnreachable ||
      frame_infos_[stack].depth + program_.least_depth[at] > limits_.depth) {
    return;
  }
  const Node& node = program_.nodes[at];
  if (node.op == Op::kBytes) {
    // Most states are collected in order and without repeats.
    if (collected_.empty() || collected_.back() != Place{at, stack}) {
      collected_.push_back({at, stack});
    }
    return;
  }
  const Place place{at, stack};
  if (std::find(visited_.begin(), visited_.end(), place) != visited_.end()) return;
  visited_.push_back(place);
  switch (node.op) {
    case Op::kSplit:
      for (uint32_t i = node.begin; i < node.end; ++i) {
        pending_.push_back({program_.targets[i], stack});
      }
      return;
    case Op::kCall:
      // Nothing to come back for: what recurs at its end needs no stack.
      if (program_.nodes[node.end].op == Op::kEnd) return pending_.push_back({node.begin, stack});
      return pending_.push_back({node.begin, Push({.below = stack, .site = node.end})});
    case Op::kRepeat:
      return pending_.push_back({program_.loops[node.begin].body,
                                 Push({.below = stack, .site = node.begin, .loop = true})});
    default:
      return Leave(stack);
  }
}

void Automaton::Leave(uint32_t stack) {
  if (stack == kBottom) {
    collected_accepts_ = true;
    return;
  }
  const Frame frame = frames_[stack];
  if (!frame.loop) return pending_.push_back({frame.site, frame.below});
  const Loop& loop = program_.loops[frame.site];
  const uint32_t done = frame.count + 1;
  if (done >= loop.min) pending_.push_back({loop.next, frame.below});
  if (loop.max == kNoLimit || done < loop.max) {
    Frame again = frame;
    // Without an upper limit turns beyond the lower one need no count.
    again.count = loop.max == kNoLimit ? std::min(done, loop.min) : done;
    pending_.push_back({loop.body, Push(again)});
  }
}

uint32_t Automaton::Push(const Frame& frame) {
  const auto [known, added] = frame_ids_.try_emplace(frame, static_cast<uint32_t>(frames_.size()));
  if (!added) return known->second;
  const uint32_t id = known->second;
  FrameInfo info{.depth = frame_infos_[frame.below].depth + (frame.loop ? 0 : 1)};
  const uint64_t below = frame_infos_[frame.below].least_bytes;
  if (frame.loop) {
    const Loop& loop = program_.loops[frame.site];
    const uint64_t turns = loop.min > frame.count + 1 ? loop.min - frame.count - 1 : 0;
    info.least_bytes = CappedSum(CappedSum(turns * program_.least_bytes[loop.body], below),
                                 program_.least_bytes[loop.next]);
  } else {
    info.least_bytes = CappedSum(program_.least_bytes[frame.site], below);
  }
  frames_.push_back(frame);
  frame_infos_.push_back(info);
  return id;
}

// What a byte leads to changes where an edge begins, and shrinks where one ends.
std::vector<uint8_t> Automaton::FirstBytes(StateId state) const {
  std::bitset<256> bytes;
  for (uint32_t i = 0; i < states_[state].places; ++i) {
    const Node& node = program_.nodes[places_[states_[state].first_place + i].node];
    for (uint32_t e = node.begin; e < node.end; ++e) bytes.set(program_.edges[e].first);
  }
  std::vector<uint8_t> out;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (bytes.test(byte)) out.push_back(static_cast<uint8_t>(byte));
  }
  return out;
}

uint32_t Automaton::LeastBytes(const Place& place) const {
  return CappedSum(program_.least_bytes[place.node], frame_infos_[place.stack].least_bytes);
}

StateId Automaton::Representative(StateId state, uint32_t horizon) {
  if (states_[state].representative != kUnknown) return states_[state].representative;
  bool same = true;
  for (uint32_t i = 0; i < states_[state].places; ++i) {
    const Place place = places_[states_[state].first_place + i];
    const uint32_t stack = RepresentativeStack(place.stack, horizon);
    same &= stack == place.stack;
    pending_.push_back({place.node, stack});
  }
  StateId found = state;
  if (same) {
    pending_.clear();
  } else {
    found = Collected(states_[state].accepts);
  }
  states_[found].representative = found;
  states_[state].representative = found;
  return found;
}

// A count is kept where one of the loop's borders may be met within the
// horizon, and else replaced by the least one that is as far from them.
uint32_t Automaton::RepresentativeStack(uint32_t stack, uint32_t horizon) {
  if (stack == kBottom) return kBottom;
  Frame frame = frames_[stack];
  frame.below = RepresentativeStack(frame.below, horizon);
  if (frame.loop) {
    const Loop& loop = program_.loops[frame.site];
    const uint64_t turns = TurnsWithin(horizon, program_.least_bytes[loop.body]);
    if (frame.count + turns < loop.min) {
      frame.count = 0;
    } else if (frame.count >= loop.min && loop.max != kNoLimit && frame.count + turns < loop.max) {
      frame.count = loop.min;
    }
  }
  return Push(frame);
}

size_t Automaton::bytes() const {
  return states_.capacity() * (sizeof(State) + 32) + places_.capacity() * sizeof(Place) +
         next_.capacity() * sizeof(StateId) +
         frames_.capacity() * (2 * sizeof(Frame) + sizeof(FrameInfo) + 16);
}

}  // namespace baton::grammar
