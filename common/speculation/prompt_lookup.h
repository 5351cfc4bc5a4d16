// SPDX-License-Identifier: Apache-2.0
// Guesses what a sequence says next from what it has said before (Saxena, 2023,
// "Prompt Lookup Decoding"; Yang et al., 2023, "Inference with Reference").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/types.h"

namespace baton::speculation {

// What speaks for a draft.
enum class Evidence : uint8_t {
  kShort,    // the last two tokens
  kMiddle,   // three or four
  kLong,     // more
  kResumed,  // a copy that had another token shortly before
};
inline constexpr size_t kEvidences = 4;

// Tokens that may come next.
struct Draft {
  std::vector<TokenId> tokens;
  Evidence evidence = Evidence::kShort;
};

// Follows a sequence that only grows. It begins to copy an earlier place where a
// run of tokens is the same, and goes on with it behind tokens that differ, as in
// code that is edited: a token that took another's place is taken to do so again.
// A function of the sequence's tokens alone, so that nothing of it travels.
// Memory: about 40 bytes a token. Thread safety: none.
class PromptLookup final {
 public:
  // Lengths of the runs of tokens that are looked for, in this order.
  static constexpr std::array<uint32_t, 2> kGrams = {5, 2};

  // Takes in what is new in `tokens`.
  void Update(std::span<const TokenId> tokens);

  // `most` tokens that may follow, or none. REQUIRES: Update(tokens) was the last
  // call of it.
  Draft Propose(std::span<const TokenId> tokens, uint32_t most) const;

 private:
  void Find(std::span<const TokenId> tokens);
  void Follow(TokenId expected, TokenId token);
  void Resync(std::span<const TokenId> tokens);
  TokenId Replaced(TokenId token) const;
  void Replace(TokenId token, TokenId by);

  // By hash of a gram: behind which index its last occurrence ends, and where the
  // gram that ends the sequence stood before; 0: nowhere.
  std::array<absl::flat_hash_map<uint64_t, uint32_t>, kGrams.size()> ends_;
  std::array<uint32_t, kGrams.size()> found_ = {};
  size_t seen_ = 0;

  size_t source_ = 0;     // index of what may come next; 0: nothing is copied
  uint32_t run_ = 0;      // how many tokens were right, or the same, before it
  uint32_t earlier_ = 0;  // before the last that was not
  uint32_t others_ = 0;   // how many that were not stand behind these
  std::vector<std::pair<TokenId, TokenId>> replaced_;  // the latest last
};

}  // namespace baton::speculation
