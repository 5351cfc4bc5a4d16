// SPDX-License-Identifier: Apache-2.0
// The engine's thread and what it owns. The methods are spread over files by
// subject: submit.cc, admission.cc, preemption.cc, trim.cc, prefix.cc, file_tier.cc, step.cc,
// handoff.cc; the loop is impl.cc.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/engine/engine.h"
#include "common/engine/mailbox.h"
#include "common/engine/sequence.h"
#include "common/engine/sequence_table.h"
#include "common/kv/prefix_cache.h"
#include "common/kv/swap_area.h"
#include "common/sched/planner.h"
#include "common/sched/policy.h"
#include "common/sched/step_costs.h"

namespace baton::engine {

// Everything without a word on threads runs on the engine's thread.
class Engine::Impl final {
 public:
  Impl(std::unique_ptr<model::Model> model, const Options& options,
       std::unique_ptr<kv::KvArena> arena, std::unique_ptr<kv::SwapArea> swap,
       std::unique_ptr<kv::BlockFile> block_file, std::unique_ptr<sched::Policy> policy,
       Listener* listener, HandoffSender* sender);
  ~Impl();

  // Any thread.
  void Post(Mailbox::Command command) { mailbox_.Post(std::move(command)); }
  void PostSubmit(SequenceSpec spec);
  Load load() const;
  absl::Status CheckIntegrity();
  const model::Model& model() const { return *model_; }
  const kv::KvArena& arena() const { return *arena_; }

  // Bodies of the commands that Engine posts.
  void Submit(SequenceSpec spec);
  void Cancel(SequenceRef ref, absl::Status reason);
  void CancelOwner(uint64_t owner, const absl::Status& reason);
  void HandoffDone(SequenceRef ref, absl::Status status, std::string transport, uint64_t bytes);
  void Reserve(SequenceRef ref, uint32_t prompt_tokens, Granted granted);
  void Activate(SequenceRef ref, const HandoffState& state,
                const std::function<void(absl::Status)>& accepted);
  void ReleaseReservation(SequenceRef ref, absl::Status reason);
  void SetReservationCancelled(std::function<void(SequenceRef)> callback);
  void Drain(std::function<void()> drained);
  void Trim(uint32_t keep);

 private:
  // A sequence's part of a step.
  struct Row {
    Sequence* sequence = nullptr;
    uint32_t tokens = 0;
    bool sampled = false;  // a token is chosen after it
    bool scored = false;   // a prompt's tokens, whose log-probabilities are told

    // Rows of logits that it needs, the last of them for the token.
    size_t logit_rows() const { return scored ? tokens : sampled ? 1 : 0; }
  };
  // When a step's model run began and ended.
  struct StepTimes {
    absl::Time start, end;
  };

  // impl.cc
  void Run();
  absl::Duration Patience(bool busy, absl::Time now) const;
  bool ReadyToStop(absl::Time now);
  void EndExpired(absl::Time now);
  void Flush();
  void PublishLoad();
  // Ends `sequence`, by itself when `status` is OK. The first call counts.
  void End(Sequence& sequence, const absl::Status& status,
           FinishReason reason = FinishReason::kNone);
  // Says so, and forgets it. REQUIRES: it holds nothing.
  void Retire(Sequence& sequence);
  // Pins its blocks up to `end`.
  void Pin(Sequence& sequence, uint32_t end);
  void Unpin(Sequence& sequence);
  void ReleaseBlocks(Sequence& sequence);
  // Gives back what no position to come sees.
  void DropOutOfSight(Sequence& sequence);
  void AddCommitted(const Sequence& sequence, Load& load) const;
  absl::Status CheckPool();

  // submit.cc
  absl::Status CheckSpec(const SequenceSpec& spec) const;
  absl::Status CheckRoom(const SequenceSpec& spec) const;
  void Refuse(const SequenceRef& ref, absl::Status status);

  // admission.cc
  void Admit(absl::Time now);
  sched::Job JobOf(const Sequence& sequence) const;
  std::vector<Sequence*> InOrder(std::span<Sequence* const> sequences, absl::Time now) const;
  // Ends what waits and cannot be done in time.
  void RefuseInfeasible(absl::Time now);
  std::vector<Sequence*> AdmissionOrder(absl::Time now) const;
  uint32_t TableToAdmit(const Sequence& sequence) const;
  uint32_t BlocksToAdmit(const Sequence& sequence) const;
  uint32_t GrowthReserve() const;
  bool TryAdmit(Sequence& sequence);
  uint32_t FreeBlocks() const;

  // preemption.cc
  std::pair<int64_t, uint64_t> KeepRank(const Sequence& sequence, absl::Time now) const;
  // Gives each decoding sequence the block of its next position, or makes it wait.
  void Grow(absl::Time now);
  // Who is to be put aside next; null: nobody can be.
  Sequence* Victim(absl::Time now) const;
  bool CanRecompute(const Sequence& sequence) const;
  bool HasSwapRoom(const Sequence& sequence) const;
  bool SwapIsCheaper(const Sequence& sequence) const;
  void Preempt(Sequence& sequence, absl::Time now);
  void Resume(Sequence& sequence);
  void DropSwapped(Sequence& sequence);
  void NoteCopy(Sequence& sequence, size_t blocks, absl::Duration elapsed);
  void BreakDeadlock(absl::Time now);

  // trim.cc
  // Trims when much of the pool was not needed for long.
  void TrimUnused(absl::Time now);
  // A turn of a trim that was asked for.
  void TrimSome();
  // False: there is nothing left to move.
  bool MoveBlocks(uint32_t keep);
  // Gives the memory of free blocks among [begin, end) back.
  void Discard(uint32_t begin, uint32_t end);

  // prefix.cc
  // Fills the block table: with what the cache has of the sequence's tokens,
  // and with blocks of its own, `total` in all. False: there are too few.
  bool TakeBlocks(Sequence& sequence, uint32_t total);
  bool TakeBlocks(Sequence& sequence, uint32_t total, const kv::PrefixMatch& match);
  // Whether `total` blocks for it leave `reserve` that are free or only cached.
  bool HasRoomFor(const Sequence& sequence, uint32_t total, uint32_t reserve);
  // How many of its tokens, from the first on, others may have computed for it.
  uint32_t ShareableTokens(const Sequence& sequence) const;
  kv::PrefixMatch FindPrefix(const Sequence& sequence) const;
  // `count` free blocks, evicting what is cached if need be.
  absl::StatusOr<std::vector<kv::BlockId>> Allocate(uint32_t count);
  // Leaves the full blocks that are computed in the cache. REQUIRES: a token
  // was drawn from them, so that they are known to hold no NaN.
  void KeepPrefix(const Sequence& sequence);

  // file_tier.cc
  // Brings blocks of those that wait back from the file.
  void Prefetch(absl::Time now);
  uint32_t FetchPrefix(Sequence& sequence, uint32_t most);

  // step.cc
  bool RunStep(absl::Time now);
  std::vector<Row> PlanRows(absl::Time now) const;
  void StartPrompts(std::span<const Row> rows, absl::Time now);
  absl::Status RunModel(std::span<const Row> rows);
  // Learns what the step took, and charges tenants for it.
  void Account(std::span<const Row> rows, const StepTimes& times);
  void CommitRow(const Row& row, std::span<const float> logits, const StepTimes& times);
  absl::StatusOr<sampling::Sample> ChooseToken(Sequence& sequence,
                                               std::span<const float> logits) const;
  absl::Status ScorePrompt(const Row& row, std::span<const float> logits);
  void CountPromptTokens(Sequence& sequence, uint32_t tokens);
  void EmitToken(Sequence& sequence, sampling::Sample sample, const StepTimes& times);
  std::optional<FinishReason> FinishOf(const Sequence& sequence) const;

  // handoff.cc
  void SendReadyBlocks(Sequence& sequence);
  void CommitHandoffs();
  void Grant(Sequence& sequence);

  const std::unique_ptr<model::Model> model_;
  const Options options_;
  std::unique_ptr<kv::KvArena> arena_;
  const std::unique_ptr<kv::SwapArea> swap_;         // null: none
  const std::unique_ptr<kv::BlockFile> block_file_;  // null: none
  double copy_rate_ = 2e9;                           // bytes a second to it and back, as measured
  Listener* const listener_;
  HandoffSender* const sender_;
  const sched::Limits limits_;
  const std::unique_ptr<sched::Policy> policy_;
  sched::StepCostEstimator costs_;

  Mailbox mailbox_;
  std::atomic<uint32_t> posted_submits_ = 0;  // in the mailbox

  kv::BlockPool pool_;
  std::unique_ptr<kv::PrefixCache> prefix_cache_;  // null: off
  std::optional<uint32_t> trim_to_;                // a trim is under way
  uint32_t most_needed_ = 0;                       // blocks, since the last look
  absl::Time next_trim_ = absl::InfinitePast();
  SequenceTable table_;
  StepOutput output_;                   // since the last Flush
  std::vector<float> logits_;           // [rows, vocabulary] of the step
  std::vector<Sequence*> uncommitted_;  // handed over in this step
  std::function<void(SequenceRef)> reservation_cancelled_;
  bool draining_ = false;
  std::function<void()> drained_;
  bool stopping_ = false;
  absl::Time stop_by_;
  absl::Duration in_model_;  // since the loop came round
  Load counters_;            // steps and tokens; the rest is filled in by PublishLoad

  mutable std::mutex load_mutex_;
  Load load_;  // guarded by load_mutex_

  std::thread thread_;  // last: runs as soon as the rest stands
};

}  // namespace baton::engine
