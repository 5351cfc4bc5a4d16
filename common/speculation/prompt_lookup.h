// SPDX-License-Identifier: Apache-2.0
// Guesses what a sequence says next from what it has said before (Saxena, 2023,
// "Prompt Lookup Decoding"; Yang et al., 2023, "Inference with Reference").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/types.h"

namespace baton::speculation {

// Tokens that may come next.
struct Draft {
  std::vector<TokenId> tokens;
  // How many tokens before them equal those at the end of the sequence, at most
  // PromptLookup::kLongestMatch; 0: there is no draft.
  uint32_t matched = 0;
};

// Follows a sequence that only grows. A function of its tokens alone, so that
// nothing of it travels. Memory: about 40 bytes a token. Thread safety: none.
class PromptLookup final {
 public:
  // Lengths of the runs of tokens that are looked for, in this order.
  static constexpr std::array<uint32_t, 2> kGrams = {5, 2};
  static constexpr uint32_t kLongestMatch = 16;

  // Takes in what is new in `tokens`.
  void Update(std::span<const TokenId> tokens);

  // `most` tokens that followed the latest earlier place like the end of `tokens`,
  // or none. REQUIRES: Update(tokens) was the last call of it.
  Draft Propose(std::span<const TokenId> tokens, uint32_t most) const;

 private:
  // By hash of a gram: where its last occurrence with something behind it ends.
  std::array<absl::flat_hash_map<uint64_t, uint32_t>, kGrams.size()> ends_;
  size_t seen_ = 0;
};

}  // namespace baton::speculation
