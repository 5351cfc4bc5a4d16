// SPDX-License-Identifier: Apache-2.0
// Evicted blocks in a file, and back from there before their turn.
#include <algorithm>

#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

// Of all that wait, in one round of the loop: a copy takes a tenth of a
// millisecond or so, and streams wait meanwhile.
constexpr uint32_t kMostFetched = 64;
// Of those that wait, whose turn is next.
constexpr int kMostAhead = 4;

}  // namespace

void Engine::Impl::Prefetch(absl::Time now) {
  if (block_file_ == nullptr || block_file_->used() == 0) return;
  uint32_t budget = kMostFetched;
  int ahead = 0;
  for (Sequence* sequence : AdmissionOrder(now)) {
    if (budget == 0 || ++ahead > kMostAhead) return;
    // Unless nothing has come since.
    if (sequence->fetched_at <= block_file_->stats().stored) {
      budget -= FetchPrefix(*sequence, budget);
    }
  }
}

// What the file has behind the sequence's part of the cache goes into the
// cache, from where admission takes it. Blocks that others may soon need stay.
uint32_t Engine::Impl::FetchPrefix(Sequence& sequence, uint32_t most) {
  const uint32_t wanted = ShareableTokens(sequence) / kv::kBlockTokens;
  std::vector<kv::BlockId> held = FindPrefix(sequence).blocks;
  for (const kv::BlockId block : held) pool_.Retain(block, kv::Owner::kRequest);
  const prefix::BlockHasher hasher(sequence.spec.cache_salt);
  prefix::Hash128 hash;
  const std::span<const TokenId> all(sequence.trunk().tokens);
  uint32_t fetched = 0;
  bool room = true;
  for (uint32_t i = 0; i < wanted && fetched < most; ++i) {
    hash = hasher.Next(hash, all.subspan(i * kv::kBlockTokens, kv::kBlockTokens));
    if (i < held.size()) continue;
    const auto prefix = all.first((i + 1) * kv::kBlockTokens);
    if (!block_file_->Has(hash, prefix)) break;
    room = FreeBlocks() > GrowthReserve();
    if (!room) break;
    const auto block = Allocate(1);
    if (!block.ok()) break;
    held.push_back(block->front());
    if (!block_file_->Load(hash, prefix, *arena_, block->front())) break;
    prefix_cache_->Insert(sequence.spec.cache_salt, prefix, held);
    ++fetched;
  }
  for (const kv::BlockId block : held) pool_.Release(block, kv::Owner::kRequest);
  if (room && fetched < most) sequence.fetched_at = block_file_->stats().stored + 1;
  return fetched;
}

}  // namespace baton::engine
