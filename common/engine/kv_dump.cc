// SPDX-License-Identifier: Apache-2.0
#include "common/engine/kv_dump.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

// A block and who holds it, as an index into KvDump::owners.
using Holding = std::pair<uint32_t, uint32_t>;

std::string_view StateName(State state) {
  switch (state) {
    case State::kQueued:
      return "queued";
    case State::kPrompt:
      return "prompt";
    case State::kHandingOff:
      return "handing_off";
    case State::kExpected:
      return "expected";
    case State::kReserving:
      return "reserving";
    case State::kReserved:
      return "reserved";
    case State::kDecoding:
      return "decoding";
    case State::kPreempted:
      return "preempted";
    case State::kEnding:
      return "ending";
  }
  return "unknown";
}

void AddHoldings(const Sequence& sequence, uint32_t owner, std::vector<Holding>& holdings) {
  for (const Branch& branch : sequence.branches) {
    for (uint32_t i = 0; sequence.holds_blocks && i < branch.blocks.size(); ++i) {
      if (sequence.dropped(branch, i)) continue;
      holdings.emplace_back(static_cast<uint32_t>(branch.blocks[i]), owner);
    }
  }
  for (const kv::BlockId block : sequence.moving_blocks(sequence.pin_begin, sequence.pin_end)) {
    holdings.emplace_back(static_cast<uint32_t>(block), owner);
  }
}

KvDump::Owner OwnerOf(const Sequence& sequence) {
  KvDump::Owner owner{.request_id = sequence.spec.request_id,
                      .tenant = sequence.spec.tenant,
                      .key = sequence.spec.ref.key,
                      .state = StateName(sequence.state),
                      .prompt_tokens = sequence.prompt_tokens,
                      .branches = static_cast<uint32_t>(sequence.branches.size()),
                      .transfer_blocks = sequence.moved_before(sequence.pin_end) -
                                         sequence.moved_before(sequence.pin_begin),
                      .swapped_blocks = static_cast<uint32_t>(sequence.swapped.size())};
  if (sequence.holds_blocks) owner.blocks = sequence.held_blocks();
  for (const Branch& branch : sequence.branches) {
    owner.computed_tokens = std::max(owner.computed_tokens, branch.computed);
    owner.dropped_blocks = std::max(owner.dropped_blocks, sequence.dropped_blocks(branch));
  }
  return owner;
}

}  // namespace

KvDump Engine::Impl::DumpKv() const {
  KvDump dump;
  dump.taken = absl::Now();
  dump.step = counters_.steps;
  dump.block_tokens = kv::kBlockTokens;
  dump.block_bytes = arena_->layout().BlockBytes();
  dump.blocks_total = pool_.capacity();
  dump.blocks_free = pool_.free_blocks();
  dump.blocks_requests = pool_.held_by(kv::Owner::kRequest);
  dump.blocks_transfers = pool_.held_by(kv::Owner::kTransfer);
  dump.blocks_prefix_cache = pool_.held_by(kv::Owner::kPrefixCache);
  dump.blocks_reclaimable = pool_.cache_only();
  if (swap_ != nullptr) dump.swapped_blocks = swap_->used_blocks();
  std::vector<Holding> holdings;
  for (const Sequence* sequence : table_.Select([](const Sequence& s) {
         return s.holds_blocks || s.pin_end > s.pin_begin || !s.swapped.empty();
       })) {
    AddHoldings(*sequence, static_cast<uint32_t>(dump.owners.size()), holdings);
    dump.owners.push_back(OwnerOf(*sequence));
  }
  std::sort(holdings.begin(), holdings.end());
  holdings.erase(std::unique(holdings.begin(), holdings.end()), holdings.end());
  auto next = holdings.begin();
  for (uint32_t id = 0; id < pool_.capacity(); ++id) {
    const kv::BlockId block{id};
    KvDump::Run run{.first = id,
                    .count = 1,
                    .requests = pool_.Count(block, kv::Owner::kRequest),
                    .transfers = pool_.Count(block, kv::Owner::kTransfer),
                    .prefix_cache = pool_.Count(block, kv::Owner::kPrefixCache)};
    for (; next != holdings.end() && next->first == id; ++next) run.owners.push_back(next->second);
    if (!dump.runs.empty() && dump.runs.back().SameHolders(run)) {
      ++dump.runs.back().count;
    } else {
      dump.runs.push_back(std::move(run));
    }
  }
  return dump;
}

}  // namespace baton::engine
