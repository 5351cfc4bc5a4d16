// SPDX-License-Identifier: Apache-2.0
// The loop, and the one way in which sequences end.
#include "common/engine/impl.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"

namespace baton::engine {
namespace {

// An idle loop wakes this often, so that its standing still shows.
constexpr absl::Duration kIdleWake = absl::Milliseconds(500);
// How long a stopping engine waits for hand-offs to let go of its blocks.
constexpr absl::Duration kStopPatience = absl::Seconds(10);
constexpr absl::Duration kCheckPatience = absl::Seconds(10);

}  // namespace

Engine::Impl::Impl(std::unique_ptr<model::Model> model, const Options& options,
                   std::unique_ptr<kv::KvArena> arena, std::unique_ptr<kv::SwapArea> swap,
                   std::unique_ptr<kv::BlockFile> block_file, std::unique_ptr<sched::Policy> policy,
                   Listener* listener, HandoffSender* sender)
    : arena_(std::move(arena)),
      model_(std::move(model)),
      queue_(model_->queue()),
      options_(options),
      swap_(std::move(swap)),
      block_file_(std::move(block_file)),
      listener_(listener),
      sender_(sender),
      limits_{options.chunk_tokens, model_->max_step_tokens()},
      chunk_stall_(options.chunk_stall),
      policy_(std::move(policy)),
      pool_(options.kv_blocks) {
  if (options.prefix_cache) {
    kv::PrefixCache::Options cache;
    cache.journal = options.prefix_journal;
    if (block_file_ != nullptr) {
      cache.evicted = [this](kv::BlockId block, const prefix::Hash128& hash,
                             std::span<const TokenId> tokens) {
        block_file_->Put(hash, tokens, *arena_, block);
      };
    }
    prefix_cache_ = std::make_unique<kv::PrefixCache>(&pool_, cache);
  }
  PublishLoad();
  thread_ = std::thread([this] { Run(); });
}

Engine::Impl::~Impl() {
  Post([this] {
    stopping_ = draining_ = true;
    stop_by_ = absl::Now() + kStopPatience;
    for (Sequence* sequence : table_.Select([](const Sequence&) { return true; })) {
      End(*sequence, absl::CancelledError("the worker stops"));
    }
  });
  thread_.join();
  // For the next process.
  if (block_file_ != nullptr && options_.block_file.keep && arena_ != nullptr) {
    prefix_cache_->Spill();
  }
}

void Engine::Impl::Run() {
  absl::Duration patience = kIdleWake;
  while (true) {
    for (Mailbox::Command& command : mailbox_.Take(patience)) command();
    absl::Time now = absl::Now();
    const absl::Time begin = now;
    in_model_ = absl::ZeroDuration();
    EndExpired(now);
    RefuseInfeasible(now);
    Prefetch(now);
    Admit(now);
    // What ended is told before a step that may take long.
    Flush();
    const bool busy = RunStep(now);
    Flush();
    TrimUnused(now);
    TrimSome();
    if (drained_ && table_.empty()) std::exchange(drained_, nullptr)();
    now = absl::Now();
    if (busy) counters_.overhead += now - begin - in_model_;
    if (stopping_ && ReadyToStop(now)) return;
    patience = Patience(busy, now);
    if (!busy) model_->Idle();
  }
}

absl::Duration Engine::Impl::Patience(bool busy, absl::Time now) const {
  if (busy || trim_to_) return absl::ZeroDuration();
  return std::min(kIdleWake, table_.NextDeadline() - now);
}

bool Engine::Impl::ReadyToStop(absl::Time now) {
  if (flight_) return false;
  if (table_.empty()) return true;
  if (now < stop_by_) return false;
  LogError("hand-offs did not let go of their blocks; leaving the KV arena mapped",
           {{"sequences", table_.size()}});
  // Better leaked than reused under a writer.
  (void)arena_.release();
  for (Sequence* sequence : table_.Select([](const Sequence&) { return true; })) Retire(*sequence);
  Flush();
  return true;
}

void Engine::Impl::EndExpired(absl::Time now) {
  for (Sequence* sequence : table_.TakeExpired(now)) {
    End(*sequence, absl::DeadlineExceededError("the request's deadline is over"));
  }
}

void Engine::Impl::Flush() {
  PublishLoad();
  if (output_.started.empty() && output_.tokens.empty() && output_.ends.empty() &&
      output_.prompt_logprobs.empty() && output_.searches.empty()) {
    return;
  }
  listener_->OnStep(std::exchange(output_, {}));
}

void Engine::Impl::PublishLoad() {
  Load load = counters_;
  table_.Count([this, &load](const Sequence& sequence) {
    load.waiting_sequences += sequence.waiting() ? sequence.seats() : 0;
    load.running_sequences += sequence.admitted() ? sequence.seats() : 0;
    const bool local = sequence.state == State::kQueued || sequence.state == State::kPrompt;
    load.queued_prompt_tokens += local ? sequence.remaining() : 0;
    AddCommitted(sequence, load);
    return false;
  });
  if (swap_ != nullptr) {
    load.swap_bytes_used = swap_->used_bytes();
    load.swap_bytes_total = swap_->total_bytes();
  }
  load.kv_blocks_total = pool_.capacity();
  load.kv_blocks_free = pool_.free_blocks();
  load.kv_blocks_requests = pool_.held_by(kv::Owner::kRequest);
  load.kv_blocks_transfers = pool_.held_by(kv::Owner::kTransfer);
  load.kv_blocks_prefix_cache = pool_.held_by(kv::Owner::kPrefixCache);
  load.costs = costs_.costs();
  load.mirror = arena_->mirror_traffic();
  load.kv_blocks_reclaimable = pool_.cache_only();
  if (prefix_cache_ != nullptr) {
    const kv::PrefixCache::Stats& stats = prefix_cache_->stats();
    load.prefix_lookups = stats.lookups;
    load.prefix_lookup_tokens = stats.lookup_tokens;
    load.prefix_hit_tokens = stats.hit_tokens;
    load.prefix_evictions = stats.evictions;
  }
  if (block_file_ != nullptr) {
    const kv::BlockFile::Stats& stats = block_file_->stats();
    load.file_stored_blocks = stats.stored;
    load.file_loaded_blocks = stats.loaded;
    load.file_damaged_blocks = stats.damaged;
    load.file_blocks = block_file_->used();
  }
  load.last_progress = absl::Now();
  const std::lock_guard lock(load_mutex_);
  load_ = load;
}

void Engine::Impl::AddCommitted(const Sequence& sequence, Load& load) const {
  if (sequence.state == State::kEnding) return;
  const uint32_t blocks = sequence.holds_blocks ? sequence.held_blocks() : BlocksToAdmit(sequence);
  if (!sequence.holds_blocks) load.promised_blocks += blocks;
  const uint64_t owner = sequence.spec.ref.owner;
  auto& committed = load.committed_blocks;
  const auto found = std::find_if(committed.begin(), committed.end(),
                                  [owner](const auto& entry) { return entry.first == owner; });
  if (found == committed.end()) {
    committed.emplace_back(owner, blocks);
  } else {
    found->second += blocks;
  }
}

Load Engine::Impl::load() const {
  const std::lock_guard lock(load_mutex_);
  return load_;
}

void Engine::Impl::End(Sequence& sequence, const absl::Status& status, FinishReason reason) {
  if (sequence.state == State::kEnding) return;
  const State before = std::exchange(sequence.state, State::kEnding);
  table_.ForgetDeadline(sequence);
  sequence.end_reason = status.ok() ? reason : FinishReason::kNone;
  sequence.end_status = status;
  if (before == State::kDecoding && !absl::IsInternal(status)) {
    for (const Branch& branch : sequence.branches) KeepPrefix(sequence, branch);
  }
  ReleaseBlocks(sequence);
  DropSwapped(sequence);
  const SequenceRef ref = sequence.spec.ref;
  if (before == State::kReserving) {
    std::exchange(sequence.granted, nullptr)(
        absl::NotFoundError(absl::StrCat("the sequence has ended: ", status.message())));
  }
  if (!sequence.writing) {
    Retire(sequence);
  } else if (before == State::kReserved) {
    if (reservation_cancelled_) reservation_cancelled_(ref);
  } else {
    sender_->Abort(
        ref, status.ok() ? absl::CancelledError("the first token ends the sequence") : status);
  }
}

void Engine::Impl::Retire(Sequence& sequence) {
  EndOutput end;
  end.ref = sequence.spec.ref;
  end.status = std::move(sequence.end_status);
  end.reason = sequence.end_reason;
  end.handed_off = sequence.handed_off;
  end.transport = std::move(sequence.transport);
  end.handoff_bytes = sequence.handoff_bytes;
  if (sequence.spec.role == Role::kDecode) end.cached_prompt_tokens = sequence.cached_tokens;
  end.preemptions = sequence.preemptions;
  end.speculation = sequence.speculation;
  output_.ends.push_back(std::move(end));
  policy_->Leave(sequence.spec.tenant);
  table_.Remove(sequence);
}

void Engine::Impl::Pin(Sequence& sequence, uint32_t end) {
  for (const kv::BlockId block : sequence.moving_blocks(sequence.pin_end, end)) {
    pool_.Retain(block, kv::Owner::kTransfer);
  }
  sequence.pin_end = end;
}

void Engine::Impl::Unpin(Sequence& sequence) {
  for (const kv::BlockId block : sequence.moving_blocks(sequence.pin_begin, sequence.pin_end)) {
    pool_.Release(block, kv::Owner::kTransfer);
  }
  sequence.pin_end = sequence.pin_begin;
}

void Engine::Impl::ReleaseBlocks(Sequence& sequence) {
  if (!std::exchange(sequence.holds_blocks, false)) return;
  for (Branch& branch : sequence.branches) ReleaseBlocks(sequence, branch);
}

// The table stays: whoever has pinned blocks finds them there.
void Engine::Impl::ReleaseBlocks(const Sequence& sequence, Branch& branch) {
  const bool in_flight = IsInFlight(sequence, branch);
  for (uint32_t i = 0; i < branch.blocks.size(); ++i) {
    if (sequence.dropped(branch, i)) continue;
    if (in_flight) {
      flight_->held.push_back(branch.blocks[i]);
    } else {
      pool_.Release(branch.blocks[i], kv::Owner::kRequest);
    }
  }
}

// Their entries stay in the table, where nobody reads them. A sender may: its
// pins are its own.
void Engine::Impl::DropOutOfSight(const Sequence& sequence, Branch& branch) {
  const kv::Window& window = sequence.spec.window;
  const uint32_t end = window.FirstBlock(branch.computed);
  for (uint32_t i = branch.dropped_end; i < end; ++i) {
    if (!window.Keeps(i)) pool_.Release(branch.blocks[i], kv::Owner::kRequest);
  }
  branch.dropped_end = std::max(branch.dropped_end, end);
}

absl::Status Engine::Impl::CheckIntegrity() {
  auto result = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> future = result->get_future();
  Post([this, result] { result->set_value(CheckPool()); });
  if (future.wait_for(absl::ToChronoSeconds(kCheckPatience)) != std::future_status::ready) {
    return absl::DeadlineExceededError("the engine's thread does not answer");
  }
  return future.get();
}

absl::Status Engine::Impl::CheckPool() {
  if (absl::Status status = pool_.CheckIntegrity(); !status.ok()) return status;
  if (prefix_cache_ != nullptr) {
    if (absl::Status status = prefix_cache_->CheckIntegrity(); !status.ok()) return status;
  }
  absl::flat_hash_set<kv::BlockId> requested, transferred;  // shared ones count once
  if (flight_) requested.insert(flight_->held.begin(), flight_->held.end());
  size_t swapped = 0;
  table_.Count([&](const Sequence& sequence) {
    for (const Branch& branch : sequence.branches) {
      for (uint32_t i = 0; sequence.holds_blocks && i < branch.blocks.size(); ++i) {
        if (!sequence.dropped(branch, i)) requested.insert(branch.blocks[i]);
      }
    }
    const auto pinned = sequence.moving_blocks(sequence.pin_begin, sequence.pin_end);
    transferred.insert(pinned.begin(), pinned.end());
    swapped += sequence.swapped.size();
    return false;
  });
  const size_t in_swap = swap_ == nullptr ? 0 : swap_->used_blocks();
  if (swapped != in_swap) {
    return absl::InternalError(absl::StrCat("sequences have ", swapped,
                                            " blocks in the swap area, which holds ", in_swap));
  }
  const size_t requests = requested.size(), transfers = transferred.size();
  if (requests == pool_.held_by(kv::Owner::kRequest) &&
      transfers == pool_.held_by(kv::Owner::kTransfer)) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "sequences hold ", requests, " blocks and pin ", transfers, ", the pool says ",
      pool_.held_by(kv::Owner::kRequest), " and ", pool_.held_by(kv::Owner::kTransfer)));
}

}  // namespace baton::engine
