// SPDX-License-Identifier: Apache-2.0
// Which tokens may come next in an answer that has to match a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/types.h"
#include "common/grammar/automaton.h"
#include "common/grammar/token_trie.h"

namespace baton::grammar {

// How far an answer has been followed. Worth nothing but time: a Matcher finds
// every answer from its tokens alone. A copy goes on by itself.
struct Cursor {
  uint64_t generation = 0;  // of the matcher's states
  StateId state = 0;
  uint32_t tokens = 0;  // followed so far
};

// What a step may choose from.
struct StepRequest {
  // Of the answer so far, none of them an end token.
  std::span<const TokenId> outputs = {};
  // That may still be chosen, the next one and an end token among them; 0: not known.
  uint32_t tokens_left = 0;
  // Chosen only where the text may end. They have no text.
  std::span<const TokenId> end_tokens = {};
};

// A program and a vocabulary, and the masks that were needed so far. Masks are
// found by walking the tree of tokens along the automaton.
//
// Where few tokens are left, only those are allowed after which the text can
// still be ended in time, by one token per byte at worst.
//
// Thread safety: all methods from any thread; they wait for one another.
class Matcher final {
 public:
  struct Limits {
    Automaton::Limits automaton = {};
    size_t bytes = 8 << 20;       // of states and masks; beyond, they are forgotten
    uint32_t new_states = 20000;  // that a mask may need
  };

  Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie,
          const Limits& limits);
  Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie)
      : Matcher(std::move(program), std::move(trie), Limits()) {}

  // Fills in `mask`, [vocabulary] bits. All zero when nothing may follow: no
  // token of the vocabulary goes on, and no end token may end.
  // INVALID_ARGUMENT: the outputs do not match. RESOURCE_EXHAUSTED: too many
  // alternatives.
  absl::Status FillMask(const StepRequest& request, Cursor* cursor, TokenMask* mask);

  // Makes the mask that FillMask will need, ahead of time.
  void Prepare(const Cursor& cursor);

  struct Standing {
    bool may_end = false;  // the text matches as it is
    bool ended = false;    // and nothing may follow
  };
  // Errors as above.
  absl::Status Follow(std::span<const TokenId> outputs, Cursor* cursor, Standing* standing);

  const TokenTrie& trie() const { return *trie_; }
  struct Counters {
    uint64_t masks = 0, masks_made = 0, states = 0, generations = 0;
  };
  Counters counters() const;

 private:
  struct Mask {
    TokenMask bits;
    // The most by which a token of it moves the end of the text away, in bytes.
    uint32_t growth = 0;
  };
  // Successive states of a run of characters, each of which may be any.
  struct Run {
    bool text = false;           // characters beyond ASCII as well
    bool complete = true;        // behind the last one no plain character may follow
    std::vector<StateId> after;  // [characters - 1]
  };
  struct Walk;
  static constexpr StateId kNotUniform = UINT32_MAX;

  absl::Status Advance(std::span<const TokenId> outputs, Cursor* cursor);
  void Forget();
  // Null: it takes too many states.
  const Mask* MaskOf(StateId state, bool at_start);
  // Of the tokens after which no more than `most_need` is needed.
  std::optional<Mask> MakeMask(StateId state, bool at_start, uint32_t most_need);
  void WalkTrie(Walk& walk, size_t begin, size_t end, StateId state, uint32_t base_depth);
  void WalkFirst(Walk& walk, StateId state);
  void AddRun(Walk& walk, StateId state);
  Run FindRun(StateId state);
  // The state after any plain (or text) character, if it is the same for all.
  StateId AfterPlain(StateId state);
  StateId AfterText(StateId state);
  StateId AfterSpan(StateId state, uint8_t first, uint8_t last);
  // Bytes until the text's end, and one for the end token.
  uint32_t Need(StateId state) const;
  size_t bytes() const;

  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const TokenTrie> trie_;
  const Limits limits_;

  mutable std::mutex mutex_;  // guards all below
  uint64_t generation_ = 1;
  std::unique_ptr<Automaton> automaton_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Mask>> masks_;  // by state and at_start
  absl::flat_hash_map<StateId, StateId> after_plain_, after_text_;
  Counters counters_;
};

}  // namespace baton::grammar
