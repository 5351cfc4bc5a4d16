// SPDX-License-Identifier: Apache-2.0
// Which tokens a sequence holds, and how often: what penalties ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/types.h"

namespace baton::sampling {

// Follows a sequence that only grows. A function of its tokens alone, so that
// nothing of it travels. Thread safety: none.
class TokenHistory final {
 public:
  struct Entry {
    TokenId token = 0;
    uint32_t outputs = 0;  // times in the output; 0: in the prompt alone
  };

  // Takes in what is new in `tokens`: `prompt_tokens` of the prompt, then the
  // output.
  void Update(std::span<const TokenId> tokens, size_t prompt_tokens);

  // Each distinct token once.
  std::span<const Entry> entries() const { return entries_; }

 private:
  size_t seen_ = 0;
  absl::flat_hash_map<TokenId, uint32_t> index_;  // into entries_
  std::vector<Entry> entries_;
};

}  // namespace baton::sampling
