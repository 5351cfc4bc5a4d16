// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::grammar {
namespace {

// No limit on where a token may lead.
constexpr uint32_t kAnyNeed = UINT32_MAX - 1;

absl::Status TooMany() {
  return absl::ResourceExhaustedError(
      "the constraint allows too many readings of the answer at once; make it less ambiguous");
}

void OrInto(const TokenMask& from, TokenMask& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
}

}  // namespace

// A mask in the making.
struct Matcher::Walk {
  TokenMask bits;
  uint32_t most_need = kAnyNeed;  // tokens that lead further from the end are left out
  uint32_t growth_from = 0;       // need of the state it starts at
  uint32_t growth = 0;
  uint8_t done = 0;          // kinds of tokens that need no walk
  uint32_t most_states = 0;  // of the automaton; given up beyond
};

Matcher::Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie,
                 const Limits& limits)
    : program_(std::move(program)),
      trie_(std::move(trie)),
      limits_(limits),
      automaton_(std::make_unique<Automaton>(program_.get(), limits_.automaton)) {}

void Matcher::Forget() {
  automaton_ = std::make_unique<Automaton>(program_.get(), limits_.automaton);
  masks_.clear();
  after_plain_.clear();
  after_text_.clear();
  ++generation_;
}

size_t Matcher::bytes() const {
  return automaton_->bytes() + masks_.size() * (trie_->mask_words() * sizeof(uint64_t) + 96) +
         (after_plain_.size() + after_text_.size()) * 16;
}

absl::Status Matcher::Advance(std::span<const TokenId> outputs, Cursor* cursor) {
  if (bytes() > limits_.bytes) Forget();
  if (cursor->generation != generation_ || cursor->tokens > outputs.size()) {
    *cursor = {.generation = generation_, .state = automaton_->start(), .tokens = 0};
  }
  StateId state = cursor->state;
  for (size_t i = cursor->tokens; i < outputs.size(); ++i) {
    std::string_view bytes = trie_->bytes(outputs[i]);
    if (i == 0 && trie_->LosesSpace(outputs[i])) bytes.remove_prefix(1);
    for (const char byte : bytes) state = automaton_->Next(state, static_cast<uint8_t>(byte));
    if (state == Automaton::kTooMany) return TooMany();
    if (state == Automaton::kDead || bytes.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("output ", i, ", token ", outputs[i], ", does not match the constraint"));
    }
  }
  cursor->state = state;
  cursor->tokens = static_cast<uint32_t>(outputs.size());
  return absl::OkStatus();
}

absl::Status Matcher::Follow(std::span<const TokenId> outputs, Cursor* cursor, Standing* standing) {
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(Advance(outputs, cursor));
  standing->may_end = automaton_->Accepts(cursor->state);
  standing->ended = standing->may_end && automaton_->IsFinal(cursor->state);
  return absl::OkStatus();
}

absl::Status Matcher::FillMask(const StepRequest& request, Cursor* cursor, TokenMask* mask) {
  const std::lock_guard lock(mutex_);
  BATON_RETURN_IF_ERROR(Advance(request.outputs, cursor));
  const StateId state = cursor->state;
  const bool at_start = cursor->tokens == 0 && trie_->drops_leading_space();
  ++counters_.masks;
  const Mask* found = MaskOf(state, at_start);
  if (found == nullptr) return TooMany();
  const Mask& whole = *found;
  // What the next token may need is what is left behind it.
  const uint32_t left = request.tokens_left;
  const bool scarce =
      left > 0 && uint64_t{Need(state)} + whole.growth > left - 1 && Need(state) <= left;
  if (scarce) {
    std::optional<Mask> few = MakeMask(state, at_start, left - 1);
    if (!few) return TooMany();
    *mask = std::move(few->bits);
    const bool none = std::all_of(mask->begin(), mask->end(), [](uint64_t w) { return w == 0; });
    // The vocabulary lacks single bytes: go on as far as there is room.
    if (none && !automaton_->Accepts(state)) *mask = whole.bits;
  } else {
    *mask = whole.bits;
  }
  for (const TokenId token : request.end_tokens) {
    if (token / 64 >= mask->size()) continue;
    automaton_->Accepts(state) ? SetBit(*mask, token) : ClearBit(*mask, token);
  }
  return absl::OkStatus();
}

void Matcher::Prepare(const Cursor& cursor) {
  const std::lock_guard lock(mutex_);
  const bool first = cursor.tokens == 0;
  if (!first && cursor.generation != generation_) return;
  MaskOf(first ? automaton_->start() : cursor.state, first && trie_->drops_leading_space());
}

Matcher::Counters Matcher::counters() const {
  const std::lock_guard lock(mutex_);
  Counters counters = counters_;
  counters.states = automaton_->size();
  counters.generations = generation_;
  return counters;
}

uint32_t Matcher::Need(StateId state) const {
  if (automaton_->Accepts(state)) return automaton_->IsFinal(state) ? 0 : 1;
  return automaton_->least_bytes(state) + 1;
}

const Matcher::Mask* Matcher::MaskOf(StateId state, bool at_start) {
  const StateId same = automaton_->Representative(state, TokenTrie::kLongestToken);
  const uint64_t key = uint64_t{same} * 2 + (at_start ? 1 : 0);
  if (const auto known = masks_.find(key); known != masks_.end()) return known->second.get();
  std::optional<Mask> mask = MakeMask(same, at_start, kAnyNeed);
  if (!mask) return nullptr;
  ++counters_.masks_made;
  return masks_.emplace(key, std::make_unique<Mask>(*std::move(mask))).first->second.get();
}

std::optional<Matcher::Mask> Matcher::MakeMask(StateId state, bool at_start, uint32_t most_need) {
  Walk walk;
  walk.bits.assign(trie_->mask_words(), 0);
  walk.most_need = most_need;
  walk.most_states = automaton_->size() + limits_.new_states;
  walk.growth_from = Need(state);
  if (at_start) {
    WalkFirst(walk, state);
  } else {
    AddRun(walk, state);
    WalkTrie(walk, 0, trie_->nodes().size() - 1, state, 0);
  }
  if (automaton_->size() > walk.most_states) return std::nullopt;
  return Mask{std::move(walk.bits), walk.growth};
}

// The nodes of [begin, end), whose bytes from depth `base_depth` on follow `state`.
void Matcher::WalkTrie(Walk& walk, size_t begin, size_t end, StateId state, uint32_t base_depth) {
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  StateId states[TokenTrie::kLongestToken + 1];
  states[base_depth] = state;
  for (size_t i = begin; i < end && automaton_->size() <= walk.most_states;) {
    const TokenTrie::Node& node = nodes[i];
    if ((node.kinds & ~walk.done) == 0) {
      i = node.end;
      continue;
    }
    const StateId next = automaton_->Next(states[node.depth - 1], node.byte);
    if (next <= Automaton::kTooMany) {  // dead, too
      i = node.end;
      continue;
    }
    states[node.depth] = next;
    const std::span<const TokenId> tokens = trie_->tokens(i);
    if (!tokens.empty()) {
      const uint32_t need = Need(next);
      if (need <= walk.most_need) {
        for (const TokenId token : tokens) SetBit(walk.bits, token);
        if (need > walk.growth_from) walk.growth = std::max(walk.growth, need - walk.growth_from);
      }
    }
    ++i;
  }
}

// At an answer's start a token's first space falls away, but a raw byte's.
void Matcher::WalkFirst(Walk& walk, StateId state) {
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  for (size_t i = 0; i + 1 < nodes.size(); i = nodes[i].end) {
    if (nodes[i].byte != ' ') {
      WalkTrie(walk, i, nodes[i].end, state, 0);
      continue;
    }
    WalkTrie(walk, i + 1, nodes[i].end, state, 1);
    const StateId after = automaton_->Next(state, ' ');
    for (const TokenId token : trie_->tokens(i)) {
      const bool fits = after > Automaton::kTooMany && Need(after) <= walk.most_need;
      if (fits && !trie_->LosesSpace(token)) SetBit(walk.bits, token);
    }
  }
}

// Tokens that are a run of characters each of which may be any.
void Matcher::AddRun(Walk& walk, StateId state) {
  const Run run = FindRun(state);
  if (run.after.empty()) return;
  const auto masks = [&](uint32_t length) -> const TokenMask& {
    return run.text ? trie_->text(length) : trie_->plain(length);
  };
  const auto length = static_cast<uint32_t>(run.after.size());
  bool all = true;
  for (const StateId after : run.after) {
    const uint32_t need = Need(after);
    all &= need <= walk.most_need;
    if (need > walk.growth_from) walk.growth = std::max(walk.growth, need - walk.growth_from);
  }
  if (all) {
    OrInto(masks(length), walk.bits);
  } else {
    for (uint32_t i = 1; i <= length; ++i) {
      if (Need(run.after[i - 1]) > walk.most_need) continue;
      const TokenMask &up_to = masks(i), &below = masks(i - 1);
      for (size_t w = 0; w < walk.bits.size(); ++w) walk.bits[w] |= up_to[w] & ~below[w];
    }
  }
  if (run.complete) walk.done = TokenTrie::kPlain | (run.text ? TokenTrie::kText : 0);
}

Matcher::Run Matcher::FindRun(StateId state) {
  Run run;
  StateId at = state;
  run.text = AfterText(state) != kNotUniform;
  while (run.after.size() < TokenTrie::kLongestRun) {
    const StateId next = AfterPlain(at);
    if (next == kNotUniform) {
      run.complete = false;
      break;
    }
    if (next == Automaton::kDead) {
      run.complete = !run.text || AfterSpan(at, 0xC2, 0xF4) == Automaton::kDead;
      break;
    }
    if (run.text && AfterText(at) != next) {
      run.complete = false;
      break;
    }
    run.after.push_back(next);
    at = next;
  }
  return run;
}

// One state after every byte of a range, or kNotUniform.
StateId Matcher::AfterSpan(StateId state, uint8_t first, uint8_t last) {
  const StateId after = automaton_->Next(state, first);
  for (uint32_t byte = first + 1u; byte <= last; ++byte) {
    if (program_->byte_class[byte] == program_->byte_class[byte - 1]) continue;
    if (automaton_->Next(state, static_cast<uint8_t>(byte)) != after) return kNotUniform;
  }
  return after;
}

StateId Matcher::AfterPlain(StateId state) {
  const auto [known, added] = after_plain_.try_emplace(state, kNotUniform);
  if (!added) return known->second;
  const StateId after = AfterSpan(state, ' ', '!');
  const bool uniform = after != kNotUniform && after != Automaton::kTooMany &&
                       AfterSpan(state, '#', '[') == after && AfterSpan(state, ']', '~') == after;
  return known->second = uniform ? after : kNotUniform;
}

StateId Matcher::AfterText(StateId state) {
  const auto [known, added] = after_text_.try_emplace(state, kNotUniform);
  if (!added) return known->second;
  const StateId after = AfterPlain(state);
  if (after == kNotUniform || after == Automaton::kDead) return kNotUniform;
  // The ways of UTF-8: leading bytes, and the ranges of the bytes behind them.
  struct Way {
    uint8_t first, last, second_first, second_last;
    int more;  // bytes behind the second
  };
  static constexpr Way kWays[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                  {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
                                  {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                                  {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
  for (const Way& way : kWays) {
    StateId at = AfterSpan(state, way.first, way.last);
    if (at == kNotUniform) return kNotUniform;
    at = AfterSpan(at, way.second_first, way.second_last);
    for (int i = 0; i < way.more && at != kNotUniform; ++i) at = AfterSpan(at, 0x80, 0xBF);
    if (at != after) return kNotUniform;
  }
  return after_text_[state] = after;
}

}  // namespace baton::grammar
