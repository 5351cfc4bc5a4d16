// SPDX-License-Identifier: Apache-2.0
// The engine's thread and what it owns. The methods are spread over files by
// subject: submit.cc, admission.cc, preemption.cc, trim.cc, prefix.cc, file_tier.cc, step.cc,
// flight.cc, run_ahead.cc, branches.cc, search.cc, constraint.cc, handoff.cc; the loop is impl.cc.
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
#include "common/engine/mask_ahead.h"
#include "common/engine/sequence.h"
#include "common/engine/sequence_table.h"
#include "common/kv/prefix_cache.h"
#include "common/kv/swap_area.h"
#include "common/model/step_queue.h"
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
  void CancelChoice(SequenceRef ref, uint32_t choice, absl::Status reason);
  void CancelOwner(uint64_t owner, const absl::Status& reason);
  void HandoffDone(SequenceRef ref, absl::Status status, std::string transport, uint64_t bytes);
  void Reserve(SequenceRef ref, uint32_t prompt_tokens, kv::KvOrigin origin, Granted granted);
  void Activate(SequenceRef ref, const HandoffState& state,
                const std::function<void(absl::Status)>& accepted,
                const std::vector<bool>& in_pool);
  void ReleaseReservation(SequenceRef ref, absl::Status reason);
  void SetReservationCancelled(std::function<void(SequenceRef)> callback);
  void Drain(std::function<void()> drained);
  void Trim(uint32_t keep);
  KvDump DumpKv() const;  // kv_dump.cc

 private:
  // A branch's part of a step.
  struct Row {
    Sequence* sequence = nullptr;
    uint32_t branch = 0;  // index; branches stay where they are during a step
    uint32_t tokens = 0;
    bool sampled = false;  // a token is chosen after it
    bool scored = false;   // a prompt's tokens, whose log-probabilities are told
    // With a draft: what is computed, the branch's last token and the draft.
    std::vector<TokenId> fed = {};
    speculation::Evidence evidence = {};
    // The model chooses its token, and gives no logits.
    bool by_model = false;
    // Its input is the token that the model chooses for this row of the step in flight,
    // counted among those for which it does.
    std::optional<uint32_t> follows = std::nullopt;
    // Chosen before it is committed; none: chosen then.
    std::optional<absl::StatusOr<sampling::Sample>> sample = std::nullopt;

    bool drafted() const { return !fed.empty(); }

    const Branch& of() const { return sequence->branches[branch]; }

    // Rows of logits that it needs, the last of them for the token.
    size_t logit_rows() const {
      if (scored || drafted()) return tokens;
      return sampled && !by_model ? 1 : 0;
    }
  };
  // When a step's model run began and ended.
  struct StepTimes {
    absl::Time start, end;
  };
  // A step that the model has.
  struct Flight {
    std::vector<Row> rows;
    StepTimes times = {};
    sched::StepShape shape = {};
    absl::Status status = {};
    std::span<const float> logits = {};  // of all rows that need some, once it is read
    // Started ahead (run_ahead.cc): whose its rows are, by arrival and choice. Sequences
    // may end meanwhile.
    std::vector<std::pair<uint64_t, uint32_t>> owners = {};
    // Blocks of branches that ended meanwhile, released when it is read.
    std::vector<kv::BlockId> held = {};
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
  // Pins those of its blocks up to `end` that a hand-off moves.
  void Pin(Sequence& sequence, uint32_t end);
  void Unpin(Sequence& sequence);
  void ReleaseBlocks(Sequence& sequence);
  void ReleaseBlocks(const Sequence& sequence, Branch& branch);
  // Gives back what no position to come sees.
  void DropOutOfSight(const Sequence& sequence, Branch& branch);
  void AddCommitted(const Sequence& sequence, Load& load) const;
  absl::Status CheckPool();

  // submit.cc
  absl::Status CheckSpec(const SequenceSpec& spec) const;
  absl::Status CheckPhases(const SequenceSpec& spec) const;
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
  uint32_t BlocksToFork(const Sequence& sequence) const;
  // Blocks that an admitted sequence will take soon.
  uint32_t ReserveOf(const Sequence& sequence) const;
  uint32_t GrowthReserve() const;
  bool TryAdmit(Sequence& sequence);
  uint32_t FreeBlocks() const;

  // preemption.cc
  std::pair<int64_t, uint64_t> KeepRank(const Sequence& sequence, absl::Time now) const;
  // Gives each branch that decodes the blocks of its next positions, for itself
  // alone, or makes it wait.
  void Grow(absl::Time now);
  void GrowBranch(Sequence& sequence, size_t index, absl::Time now);
  // Who is to be put aside next; null: nobody can be.
  Sequence* Victim(absl::Time now) const;
  bool CanRecompute(const Sequence& sequence) const;
  bool HasSwapRoom(const Sequence& sequence) const;
  bool SwapIsCheaper(const Sequence& sequence) const;
  void Preempt(Sequence& sequence, absl::Time now);
  // Gives its KV up, to be computed again.
  void DropKv(Sequence& sequence);
  void Resume(Sequence& sequence);
  void SwapOut(Sequence& sequence);
  // False: there are too few blocks.
  bool SwapIn(Sequence& sequence);
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
  // and with blocks of its own, `total` entries in all, of which dropped ones get
  // none. False: there are too few.
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
  void KeepPrefix(const Sequence& sequence, const Branch& branch);

  // file_tier.cc
  // Brings blocks of those that wait back from the file.
  void Prefetch(absl::Time now);
  uint32_t FetchPrefix(Sequence& sequence, uint32_t most);

  // step.cc
  bool RunStep(absl::Time now);
  std::vector<Row> PlanRows(absl::Time now) const;
  void PlanBranches(Sequence& sequence, std::vector<Row>& rows, std::vector<Row>& chunks) const;
  void StartPrompts(std::span<const Row> rows, absl::Time now);
  // Plans a step and gives it to the model. None: there is nothing to do.
  std::optional<Flight> StartStep(absl::Time now);
  void CommitRows(const Flight& step, std::span<Row> rows);
  void CommitRow(Row& row, std::span<const float> logits, const StepTimes& times);
  // A branch's next token. False: it does not go on as it did, for it has ended
  // or failed, or a search begins.
  bool CommitToken(Sequence& sequence, Branch& branch, absl::StatusOr<sampling::Sample> sample,
                   const StepTimes& times);
  absl::Status ScorePrompt(const Row& row, std::span<const float> logits);
  void CountPromptTokens(Sequence& sequence, const Branch& branch, uint32_t tokens);
  // The mask of a constraint in it is good until the next call.
  absl::StatusOr<sampling::Position> PositionOf(Sequence& sequence, Branch& branch,
                                                uint32_t choice);
  absl::StatusOr<sampling::Sample> ChooseToken(Sequence& sequence, Branch& branch, uint32_t choice,
                                               std::span<const float> logits);
  void EmitToken(Sequence& sequence, TokenOutput token, const StepTimes& times);

  // flight.cc
  // Each once, in order.
  static std::vector<Sequence*> SequencesOf(std::span<const Row> rows);
  // Gives a step to the model. Without a queue it is done when this returns.
  Flight Launch(std::vector<Row> rows);
  absl::Status RunModel(Flight& step);
  absl::Status QueueStep(Flight& step);
  static model::Slice SliceOf(const Row& row);
  // Waits for it, and takes what the model has chosen.
  void ReadStep(Flight& step);
  // Ends whose rows it has, and drops what was started behind it.
  void FailStep(const Flight& step);
  sched::StepShape ShapeOf(std::span<const Row> rows) const;
  // Learns what the step took, and charges tenants for it.
  void Account(const Flight& step);

  // sample_rows.cc
  // Whether the model can choose the row's token.
  bool ModelChooses(const Row& row) const;
  // Fills in how, where it does; `mask` keeps what the choice refers to.
  bool LetModelChoose(const Row& row, model::TokenChoice& choice, std::vector<uint64_t>& mask);
  // Chooses the tokens of rows that follow from what stands before the step
  // alone, on the model's threads.
  void SampleRows(Flight& step);

  // run_ahead.cc
  // Starts the step behind the one in flight before that one is read, where nothing
  // but its tokens can change what there is to do.
  std::optional<Flight> RunAhead();
  std::optional<std::vector<Row>> PlanAhead();
  // Whether a step may have the row before the token before it is read.
  bool MayRunAhead(const Row& row, absl::Duration per_token);
  // Gives the branch the block of the position behind its next one. False: there is none.
  bool GrowAhead(Branch& branch);
  // Leaves of a step that was started ahead the rows whose branches go on.
  void FindRowsAgain(Flight& step);
  bool IsInFlight(const Sequence& sequence, const Branch& branch) const;

  // branches.cc
  // Chooses what follows the prompt: the first token of each choice, or where a
  // search begins; hands over, or forks.
  void BeginAnswers(Row& row, std::span<const float> logits, const StepTimes& times);
  absl::Status FirstTokens(Row& row, std::span<const float> logits, const StepTimes& times);
  // One branch for each choice, which begins with its token.
  void Fork(Sequence& sequence, std::span<const TokenId> first_tokens);
  // All branches go on from what the first one has computed again.
  void ForkAgain(Sequence& sequence);
  // A branch that holds what `parent` has computed, too.
  Branch Share(const Sequence& sequence, const Branch& parent);
  // Why the branch ends with its last token; kNone: it does not.
  FinishReason FinishOf(const Sequence& sequence, const Branch& branch);
  // The branch has a new token: goes on to its next phase where one ends.
  void EnterPhase(Sequence& sequence, Branch& branch);
  // The branch goes on in the phase behind its own.
  void NextPhase(Sequence& sequence, Branch& branch);
  void EndBranch(Sequence& sequence, Branch& branch, FinishReason reason);
  void DropCancelled(Sequence& sequence);
  // After a step, or a change between steps: forgets branches that have ended,
  // and ends the sequence with the last one, or with its failure.
  void Settle(Sequence& sequence);

  // search.cc
  absl::StatusOr<sampling::BeamRow> Expand(Sequence& sequence, Branch& branch,
                                           std::span<const float> logits);
  // `branch` is where the beam search of its phase begins.
  void StartSearch(Sequence& sequence, const Branch& branch);
  void CommitBeams(std::span<const Row> rows, std::span<const float> logits,
                   const StepTimes& times);
  void AdvanceSearch(Sequence& sequence, std::span<const sampling::BeamRow> rows,
                     const StepTimes& times);
  void FollowBeams(Sequence& sequence, std::span<const uint32_t> parents);
  void ConcludeSearch(Sequence& sequence, const StepTimes& times);
  void EmitHypothesis(Sequence& sequence, const sampling::BeamSearch::Hypothesis& hypothesis,
                      uint32_t choice, FinishReason finish, const StepTimes& times);
  void GoOnFrom(Sequence& sequence, const sampling::BeamSearch::Hypothesis& hypothesis);

  // drafts.cc
  // Lets decode rows check guesses of the tokens behind them, where that pays.
  void AddDrafts(std::vector<Row>& rows);
  void AddDraft(Row& row, absl::Duration per_token, uint32_t room);
  speculation::Draft DraftFor(const Sequence& sequence, Branch& branch, uint32_t most);
  // Whether guesses would be checked behind the branch's last token, by what is known.
  bool WantsDraft(const Row& row, absl::Duration per_token);
  // Of a step that decodes alone.
  absl::Duration TimePerToken(const sched::StepShape& shape) const;
  double PriceOfDraft(const Row& row, absl::Duration per_token) const;
  void CommitDraft(const Row& row, std::span<const float> logits, const StepTimes& times);

  // constraint.cc
  // The tokens that may follow, as a mask that is good until the next call;
  // empty: all.
  absl::StatusOr<std::span<const uint64_t>> AllowedTokens(const Sequence& sequence, Branch& branch);
  // Whether outputs are a text behind which nothing may follow; `cursor` may have
  // followed the first of them.
  bool AreComplete(const Sequence& sequence, std::span<const TokenId> outputs,
                   grammar::Cursor cursor);
  // The same of those of `branch` and one more.
  bool CompletesText(const Sequence& sequence, const Branch& branch, TokenId token);

  // handoff.cc
  void SendReadyBlocks(Sequence& sequence);
  void CommitHandoffs();
  void Grant(Sequence& sequence);
  // INVALID_ARGUMENT when the sequence cannot go on from it.
  absl::Status CheckState(const Sequence& sequence, const HandoffState& state) const;

  std::unique_ptr<kv::KvArena> arena_;  // outlives the model, which may pin its memory
  const std::unique_ptr<model::Model> model_;
  model::StepQueue* const queue_;  // the model's; null: none
  const Options options_;
  const std::unique_ptr<kv::SwapArea> swap_;         // null: none
  const std::unique_ptr<kv::BlockFile> block_file_;  // null: none
  double copy_rate_ = 2e9;                           // bytes a second to it and back, as measured
  Listener* const listener_;
  HandoffSender* const sender_;
  const sched::Limits limits_;
  const absl::Duration chunk_stall_;
  const std::unique_ptr<sched::Policy> policy_;
  sched::StepCostEstimator costs_;
  speculation::PriceDoubt price_doubt_;

  Mailbox mailbox_;
  std::atomic<uint32_t> posted_submits_ = 0;  // in the mailbox

  kv::BlockPool pool_;
  std::unique_ptr<kv::PrefixCache> prefix_cache_;  // null: off
  std::optional<uint32_t> trim_to_;                // a trim is under way
  uint32_t most_needed_ = 0;                       // blocks, since the last look
  absl::Time next_trim_ = absl::InfinitePast();
  SequenceTable table_;
  StepOutput output_;          // since the last Flush
  std::vector<float> logits_;  // [rows, vocabulary] of the step, without a queue
  std::optional<Flight> flight_;
  absl::Time model_free_ = absl::InfinitePast();  // when the last step was read
  grammar::TokenMask allowed_;                    // of the token that is being chosen
  MaskAhead mask_ahead_;
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
