// SPDX-License-Identifier: Apache-2.0
// Blocks that sequences share through the prefix cache.
#include <algorithm>
#include <utility>

#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {

uint32_t Engine::Impl::ShareableTokens(const Sequence& sequence) const {
  if (prefix_cache_ == nullptr || !sequence.spec.prefix_cache) return 0;
  // Every token of the prompt is scored: each has to be computed.
  if (sequence.spec.sampling.prompt_logprobs.has_value()) return 0;
  // What was swapped out is copied into blocks of its own.
  if (!sequence.swapped.empty()) return 0;
  if (sequence.fork_at > 0) return sequence.fork_at - 1;
  const auto tokens = static_cast<uint32_t>(sequence.trunk().tokens.size());
  // The other end of a hand-off has computed the last token; here somebody has
  // to, for its logits.
  return sequence.state == State::kReserving ? tokens : tokens - 1;
}

kv::PrefixMatch Engine::Impl::FindPrefix(const Sequence& sequence) const {
  const uint32_t most = ShareableTokens(sequence);
  if (most == 0) return {};
  kv::PrefixMatch match =
      prefix_cache_->Find(sequence.spec.cache_salt, sequence.trunk().tokens, most);
  // A hand-off brings whole blocks.
  if (sequence.state == State::kReserving) {
    match.tail.reset();
    match.tail_tokens = 0;
  }
  return match;
}

bool Engine::Impl::TakeBlocks(Sequence& sequence, uint32_t total) {
  kv::PrefixMatch match = FindPrefix(sequence);
  if (TakeBlocks(sequence, total, match)) return true;
  // The block to copy from is held meanwhile; it may be the very one that lacks.
  if (!match.tail.has_value()) return false;
  match.tail.reset();
  match.tail_tokens = 0;
  return TakeBlocks(sequence, total, match);
}

bool Engine::Impl::TakeBlocks(Sequence& sequence, uint32_t total, const kv::PrefixMatch& match) {
  const auto release = [&](kv::BlockId block) { pool_.Release(block, kv::Owner::kRequest); };
  for (const kv::BlockId block : match.blocks) pool_.Retain(block, kv::Owner::kRequest);
  if (match.tail.has_value()) pool_.Retain(*match.tail, kv::Owner::kRequest);
  Branch& trunk = sequence.trunk();
  const auto own =
      Allocate(total - static_cast<uint32_t>(match.blocks.size()) - sequence.dropped_blocks(trunk));
  if (!own.ok()) {
    for (const kv::BlockId block : match.blocks) release(block);
    if (match.tail.has_value()) release(*match.tail);
    return false;
  }
  if (match.tail.has_value()) arena_->CopyBlock(*match.tail, own->front());
  if (prefix_cache_ != nullptr && sequence.spec.prefix_cache) {
    prefix_cache_->Use(match, static_cast<uint32_t>(trunk.tokens.size()));
  }
  if (match.tail.has_value()) release(*match.tail);
  trunk.blocks = match.blocks;
  for (auto next = own->begin(); trunk.blocks.size() < total;) {
    const bool dropped = sequence.dropped(trunk, static_cast<uint32_t>(trunk.blocks.size()));
    trunk.blocks.push_back(dropped ? kv::BlockId{0} : *next++);
  }
  sequence.holds_blocks = true;
  // Taken up again it may find what it has left behind itself.
  if (sequence.state != State::kPreempted) sequence.cached_tokens = match.tokens();
  if (sequence.state != State::kReserving) trunk.computed = match.tokens();
  return true;
}

bool Engine::Impl::HasRoomFor(const Sequence& sequence, uint32_t total, uint32_t reserve) {
  const uint32_t free = FreeBlocks();
  if (total + reserve <= free) return true;
  // What it shares with others that run is not taken from anybody.
  const kv::PrefixMatch match = FindPrefix(sequence);
  const uint32_t before = pool_.cache_only();
  for (const kv::BlockId block : match.blocks) pool_.Retain(block, kv::Owner::kRequest);
  const uint32_t taken = before - pool_.cache_only();
  for (const kv::BlockId block : match.blocks) pool_.Release(block, kv::Owner::kRequest);
  return total - static_cast<uint32_t>(match.blocks.size()) + taken + reserve <= free;
}

absl::StatusOr<std::vector<kv::BlockId>> Engine::Impl::Allocate(uint32_t count) {
  if (prefix_cache_ != nullptr) prefix_cache_->MakeFree(count);
  return pool_.Allocate(count, kv::Owner::kRequest);
}

void Engine::Impl::KeepPrefix(const Sequence& sequence, const Branch& branch) {
  if (prefix_cache_ == nullptr || !sequence.spec.prefix_cache || sequence.spec.swap_only) return;
  const size_t full = std::min<size_t>(branch.computed / kv::kBlockTokens, branch.blocks.size());
  prefix_cache_->Insert(sequence.spec.cache_salt,
                        std::span(branch.tokens).first(full * kv::kBlockTokens),
                        std::span(branch.blocks).first(full));
}

}  // namespace baton::engine
