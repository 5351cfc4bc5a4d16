// SPDX-License-Identifier: Apache-2.0
#include "common/engine/sequence.h"

#include "absl/container/flat_hash_set.h"

namespace baton::engine {
namespace {

// Of the first `end_of(branch)` entries of each branch's table.
template <typename EndOf>
uint32_t CountDistinct(const Sequence& sequence, EndOf end_of) {
  if (sequence.branches.size() == 1) {
    const Branch& branch = sequence.trunk();
    return end_of(branch) - sequence.dropped_blocks(branch);
  }
  absl::flat_hash_set<kv::BlockId> distinct;
  for (const Branch& branch : sequence.branches) {
    for (uint32_t i = 0; i < end_of(branch); ++i) {
      if (!sequence.dropped(branch, i)) distinct.insert(branch.blocks[i]);
    }
  }
  return static_cast<uint32_t>(distinct.size());
}

}  // namespace

std::vector<kv::BlockId> Sequence::moving_blocks(uint32_t begin, uint32_t end) const {
  std::vector<kv::BlockId> blocks;
  for (uint32_t i = begin; i < end; ++i) {
    if (moves(i)) blocks.push_back(trunk().blocks[i]);
  }
  return blocks;
}

uint32_t Sequence::held_blocks() const {
  return CountDistinct(*this,
                       [](const Branch& b) { return static_cast<uint32_t>(b.blocks.size()); });
}

uint32_t Sequence::live_blocks() const {
  return CountDistinct(*this, [](const Branch& b) { return kv::BlocksForTokens(b.computed); });
}

uint32_t Sequence::new_blocks() const {
  uint32_t count = 0;
  absl::flat_hash_set<kv::BlockId> written;
  for (const Branch& branch : branches) {
    const uint32_t next = branch.computed / kv::kBlockTokens;
    const bool starts = branch.computed % kv::kBlockTokens == 0;
    if (starts || !written.insert(branch.blocks[next]).second) ++count;
  }
  return count;
}

uint32_t Sequence::common_tokens() const {
  const std::vector<TokenId>& first = trunk().tokens;
  size_t common = first.size();
  for (const Branch& branch : branches) {
    common = std::min(common, branch.tokens.size() - 1);
    const auto end = first.begin() + static_cast<std::ptrdiff_t>(common);
    common = static_cast<size_t>(std::mismatch(first.begin(), end, branch.tokens.begin()).first -
                                 first.begin());
  }
  return static_cast<uint32_t>(common);
}

bool WritesShared(const Branch& branch, const kv::BlockPool& pool) {
  const uint32_t next = branch.computed / kv::kBlockTokens;
  if (branch.computed % kv::kBlockTokens == 0) return false;
  const kv::BlockId block = branch.blocks[next];
  return pool.Count(block, kv::Owner::kRequest) > 1 || pool.Holds(block, kv::Owner::kPrefixCache);
}

bool HasBlocksForNext(const Branch& branch, const kv::BlockPool& pool) {
  return branch.blocks.size() >= kv::BlocksForTokens(branch.next_end()) &&
         !WritesShared(branch, pool);
}

}  // namespace baton::engine
