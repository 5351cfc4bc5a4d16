// SPDX-License-Identifier: Apache-2.0
// The step loop of a worker: plan, run, commit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/engine/kv_dump.h"
#include "common/grammar/matcher.h"
#include "common/kv/arena.h"
#include "common/kv/block_file.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"
#include "common/kv/window.h"
#include "common/model/model.h"
#include "common/prefix/journal.h"
#include "common/sampling/beam_search.h"
#include "common/sampling/params.h"
#include "common/sched/policy.h"
#include "common/sched/step_costs.h"

namespace baton::engine {

// What becomes of a sequence on this worker.
enum class Role : uint8_t {
  kPrefill,  // compute the prompt, sample token 0, hand the KV over
  kDecode,   // wait for a hand-off, then decode from token 1
  kWhole,    // both here
};

// Names a sequence: `owner` is the router link it came from.
struct SequenceRef {
  uint64_t owner = 0;
  uint64_t key = 0;

  friend bool operator==(const SequenceRef&, const SequenceRef&) = default;
  friend auto operator<=>(const SequenceRef&, const SequenceRef&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SequenceRef& ref) {
    return H::combine(std::move(h), ref.owner, ref.key);
  }
};

// A part of an answer with a strategy of its own: types.proto, Phase.
struct PhaseSpec {
  sampling::Params sampling = {};
  std::optional<sampling::BeamParams> beam = std::nullopt;
  uint32_t max_tokens = 0;  // 0: not by length
  std::vector<TokenId> until_tokens = {};
};

struct SequenceSpec {
  SequenceRef ref;
  Role role = Role::kWhole;
  std::string request_id;  // for logs
  std::vector<TokenId> prompt;
  sampling::Params sampling;
  uint32_t max_tokens = 1;  // of each answer
  std::vector<TokenId> stop_tokens;
  // Most tokens that are guessed and checked in one step; 0: none. No token
  // depends on it.
  uint32_t draft_tokens = 0;
  // Answers to one prompt, from 0 to choices - 1; with `beam` the best hypotheses.
  uint32_t choices = 1;
  std::optional<sampling::BeamParams> beam = std::nullopt;
  // Instead of `sampling` and `beam`; a phase with beams needs choices == 1.
  std::vector<PhaseSpec> phases = {};
  absl::Time deadline = absl::InfiniteFuture();
  std::string handoff_key;  // kPrefill and kDecode: ties both ends together
  int32_t priority = 0;     // sched::kLowestPriority to sched::kHighestPriority
  std::string tenant;       // on whose account it runs; may be empty
  // kDecode: its KV comes converted or of other kernels. Computed here it would
  // have other bits.
  bool swap_only = false;
  // Names whose prefixes may be shared: those of one salt. Secret between tenants.
  std::string cache_salt;
  // False: takes nothing from the prefix cache and leaves nothing there.
  bool prefix_cache = true;
  // What its positions see. With a limit it is kept out of the prefix cache: KV
  // behind the window is not that of sequences that see more.
  kv::Window window = {};
  // What the text of each answer must be; null: anything. Its vocabulary is the
  // model's.
  std::shared_ptr<grammar::Matcher> constraint = nullptr;

  // Answers and beams that are computed at once, at most.
  uint32_t width() const;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength };

struct TokenOutput {
  SequenceRef ref;
  uint32_t index = 0;  // in the choice's output, from 0
  sampling::Sample sample;
  // Token 0 only: end of the prompt's last chunk.
  std::optional<absl::Time> prefill_end;
  // Of a kDecode sequence's first tokens only: start of its first step.
  std::optional<absl::Time> first_step_start;
  uint32_t choice = 0;
  FinishReason finish = FinishReason::kNone;  // the choice ends with this token
  std::optional<double> score;                // of the hypothesis that the choice is
};

// The prompt is computed, and a search begins of which no token is decided yet.
struct SearchOutput {
  SequenceRef ref;
  absl::Time prefill_end;
};

// Log-probabilities of the prompt tokens from `first_index`, at least 1, on.
struct PromptLogprobsOutput {
  SequenceRef ref;
  uint32_t first_index = 0;
  std::vector<sampling::TokenLogprobs> logprobs;
};

struct StartOutput {
  SequenceRef ref;
  absl::Time start;                   // of the first chunk
  uint32_t cached_prompt_tokens = 0;  // not computed: their KV was here
};

// What it cost a sequence that others were served meanwhile.
struct Preemptions {
  uint32_t count = 0;  // times it was put aside
  uint32_t recomputed_tokens = 0;
  uint64_t swapped_bytes = 0;                  // out and in
  absl::Duration time = absl::ZeroDuration();  // put aside, in all
};

// What guessing its tokens did for a sequence: inference.proto, Speculation.
struct Speculation {
  uint32_t steps = 0;
  uint32_t drafted_tokens = 0;
  uint32_t accepted_tokens = 0;
};

// Sent exactly once for every submitted sequence, after which the worker
// holds nothing of it.
struct EndOutput {
  SequenceRef ref;
  absl::Status status;                        // not OK: reason is kNone
  FinishReason reason = FinishReason::kNone;  // of the choice that ended last
  bool handed_off = false;                    // kPrefill: the decode worker goes on
  std::string transport;                      // of the hand-off
  uint64_t handoff_bytes = 0;
  // kDecode: prompt tokens whose KV was here, so that the hand-off left it out.
  uint32_t cached_prompt_tokens = 0;
  Preemptions preemptions;
  Speculation speculation;
};

// All that one step produced, for all owners.
struct StepOutput {
  std::vector<StartOutput> started;
  std::vector<PromptLogprobsOutput> prompt_logprobs;
  std::vector<SearchOutput> searches;
  std::vector<TokenOutput> tokens;
  std::vector<EndOutput> ends;
};

// State that travels with a hand-off beside the KV.
struct HandoffState {
  std::vector<TokenId> first_tokens = {};  // of each choice
  uint32_t drawn = 1;                      // outputs of each so far
  // Instead, with drawn == 0: where a beam search begins.
  sampling::BeamRow search = {};
};

// Receives what the engine produces, on the engine's thread. Must not block.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void OnStep(const StepOutput& output) = 0;
};

// Carries a kPrefill sequence's KV away. Called on the engine's thread; must
// not block. Every Begin is answered by exactly one Engine::HandoffDone, also
// after Abort: until then the blocks stay pinned, since a writer may still
// read them.
class HandoffSender {
 public:
  virtual ~HandoffSender() = default;
  // The prompt's first chunk is about to run.
  virtual void Begin(const SequenceSpec& spec) = 0;
  // KV of `blocks` is complete in all layers and will not change. They are those
  // from index `first_block` on of the blocks that move: all of the prompt's, or
  // with a window those that the position behind the prompt sees.
  virtual void BlocksReady(SequenceRef ref, uint32_t first_block,
                           std::vector<kv::BlockId> blocks) = 0;
  // Every block was made ready, and token 0 sampled: commit.
  virtual void Commit(SequenceRef ref, const HandoffState& state) = 0;
  // Give up, for `reason`.
  virtual void Abort(SequenceRef ref, const absl::Status& reason) = 0;
};

struct Options {
  uint32_t kv_blocks = 0;
  uint32_t max_sequences = 64;  // running at once
  uint32_t max_waiting = 1024;  // beyond it: RESOURCE_EXHAUSTED
  uint32_t chunk_tokens = 512;  // of prompts per step; a multiple of 32
  // By how much prompts may hold up a step with decode rows; 32 tokens are taken anyway.
  absl::Duration chunk_stall = absl::InfiniteDuration();
  sched::PolicyOptions policy = {};  // which prompts go first
  // Blocks outlive their sequences while nobody else needs them, and are shared.
  bool prefix_cache = true;
  // Hears which prefixes are cached; null, or must outlive the engine.
  prefix::Journal* prefix_journal = nullptr;
  // Takes sequences with a window.
  bool windows = true;
  // File for blocks that the prefix cache evicts; no path: none. The engine fills
  // in most_tokens.
  kv::BlockFile::Options block_file = {};
  // Host memory for KV of sequences that are put aside; 0: none.
  uint64_t swap_bytes = 0;
  // Memory of blocks that were not needed for `kv_return_after` goes back to the
  // system, prefixes that only the cache holds included, but for this many
  // blocks; 0: none ever does. It is taken again on demand.
  uint32_t kv_floor_blocks = 0;
  absl::Duration kv_return_after = absl::Seconds(60);
};

struct Load {
  uint32_t waiting_sequences = 0;
  uint32_t running_sequences = 0;
  uint64_t queued_prompt_tokens = 0;
  uint32_t kv_blocks_total = 0;
  uint32_t kv_blocks_free = 0;
  uint32_t kv_blocks_requests = 0;
  uint32_t kv_blocks_transfers = 0;
  uint32_t kv_blocks_prefix_cache = 0;
  uint32_t kv_blocks_reclaimable = 0;  // of those: held by nobody else
  uint64_t steps = 0;
  uint64_t steps_ahead = 0;  // of those: started before the one before was read
  uint64_t prompt_tokens_computed = 0;
  uint64_t tokens_sampled = 0;
  uint64_t prefix_lookups = 0;
  uint64_t prefix_lookup_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t prefix_evictions = 0;
  uint64_t file_stored_blocks = 0;
  uint64_t file_loaded_blocks = 0;
  uint64_t file_damaged_blocks = 0;
  uint32_t file_blocks = 0;  // there now
  uint64_t preemptions = 0;
  uint64_t swaps = 0;  // preemptions that kept the KV
  uint64_t recomputed_tokens = 0;
  uint64_t drafted_tokens = 0;  // that were guessed
  uint64_t accepted_tokens = 0;
  uint64_t swapped_bytes = 0;
  uint64_t swap_bytes_used = 0;
  uint64_t swap_bytes_total = 0;
  uint64_t handoff_bytes = 0;      // of kPrefill sequences, that were handed over
  uint64_t blocks_moved = 0;       // to lower ones, while their holders ran on
  uint64_t kv_bytes_returned = 0;  // to the system
  kv::MirrorTraffic mirror = {};   // between the host's and a GPU's KV pool
  // Of steps, outside of the model: scheduling, sampling, telling.
  absl::Duration overhead = absl::ZeroDuration();
  // Blocks that sequences need to be admitted, and hold none of yet.
  uint32_t promised_blocks = 0;
  // Those, and what sequences hold, shared ones for each.
  std::vector<std::pair<uint64_t, uint32_t>> committed_blocks;  // by owner
  sched::StepCosts costs;                                       // as measured lately
  absl::Time last_progress;  // of the loop, for liveness; also when idle
};

// Owns the model, the KV arena and the pool, and one thread that runs steps.
//
// Admission takes the blocks of the prompt and one more token, and leaves each
// running sequence a block to grow by. When the pool runs dry, the running
// sequence of the lowest class that arrived last is put aside with all of its
// choices or beams (never the first one, so that there is always progress): its
// KV is swapped out, or dropped and computed again, whichever is predicted to be
// cheaper. No token depends on it.
// A sequence that can never fit is refused at once. Order:
// prompts as the policy says; decode rows are in every step.
//
// The choices and beams of a sequence share the blocks of what they have in
// common: a block that several hold is copied before one of them writes into it.
//
// What a prompt has in common with earlier sequences is not computed again: its
// full blocks are shared, a partly common one is copied. A sequence's KV does
// not depend on how it is chunked, so its tokens are the same either way.
//
// Thread safety: all methods from any thread; they post to the engine's
// thread and return at once, but for load() and CheckIntegrity().
class Engine final {
 public:
  // `listener` and `sender` (may be null where no kPrefill is submitted) must
  // outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::unique_ptr<model::Model> model,
                                                        const Options& options, Listener* listener,
                                                        HandoffSender* sender);
  // Ends every sequence with CANCELLED, waits for hand-offs to let go, joins.
  ~Engine();

  // Takes a sequence. What is wrong with it is said in its EndOutput:
  // INVALID_ARGUMENT (empty prompt, id outside the vocabulary, prompt beyond
  // the context), RESOURCE_EXHAUSTED (can never fit, with the numbers; or too
  // many wait), ALREADY_EXISTS (ref in use), UNAVAILABLE (draining).
  void Submit(SequenceSpec spec);

  // Ends a sequence with `reason`; its EndOutput follows within one step. No
  // effect on a sequence that has ended.
  void Cancel(SequenceRef ref, absl::Status reason);
  // Ends one of its choices without a word, or all with `reason` when no other
  // is left. No effect on one that has ended.
  void CancelChoice(SequenceRef ref, uint32_t choice, absl::Status reason);
  // The same for all sequences of an owner.
  void CancelOwner(uint64_t owner, absl::Status reason);

  // The sender has let go of the blocks of `ref`.
  void HandoffDone(SequenceRef ref, absl::Status status, std::string transport, uint64_t bytes);

  // Blocks for a hand-off to fill: those that move (HandoffSender::BlocksReady)
  // from index `first_block` on. Those before hold the prompt's KV already.
  struct Reservation {
    uint32_t first_block = 0;
    std::vector<kv::BlockId> blocks;
  };
  // Landing of a hand-off for a submitted kDecode sequence. `granted` gets the
  // blocks, pinned as transfer, once they are free; or NOT_FOUND (no such
  // sequence), FAILED_PRECONDITION (other prompt length, or reserved already).
  // Called on the engine's thread; must not block. KV of another origin than kOwn
  // stays the sequence's alone, which then has the rules of swap_only.
  using Granted = std::function<void(absl::StatusOr<Reservation>)>;
  void Reserve(SequenceRef ref, uint32_t prompt_tokens, kv::KvOrigin origin, Granted granted);
  // Brings what the blocks hold into the arena, where it may be read once `done` is
  // called, on the engine's thread. For blocks of a hand-off that has not ended.
  void BringToHost(std::vector<kv::BlockId> blocks, std::function<void()> done);
  // The blocks hold the verified KV of the whole prompt: decode from here. `in_pool`:
  // whether a slice [block][layer] of the reservation is in the arena's pool on a GPU;
  // empty: all are in the arena.
  // `accepted` hears OK, or NOT_FOUND when the sequence has ended meanwhile.
  void Activate(SequenceRef ref, const HandoffState& state,
                std::function<void(absl::Status)> accepted, std::vector<bool> in_pool = {});
  // Nobody writes into the reserved blocks any more: they are free again. The
  // sequence ends with `reason` if it has not yet. A cancelled kDecode
  // sequence with a reservation keeps its blocks, and its EndOutput waits,
  // until this call or Activate; `on_cancel` of the options tells the owner.
  void ReleaseReservation(SequenceRef ref, absl::Status reason);
  // Called on the engine's thread when a sequence with a live reservation is
  // cancelled. Set before the first Submit.
  void SetReservationCancelled(std::function<void(SequenceRef)> callback);

  // Moves what lies beyond the first `keep` blocks of the pool to free ones among
  // them, a few blocks between any two steps, and gives the memory of the rest
  // back to the system: huge pages whole, so that blocks beside the kept ones in
  // their last huge page stay in use. Prefixes that do not fit are evicted; blocks that a
  // hand-off uses stay. The pool's size is the same as before: blocks beyond are
  // used again when the others are not enough. No token depends on it.
  void Trim(uint32_t keep);

  // No new sequences; what runs is finished. `drained` is called once when
  // nothing is left.
  void Drain(std::function<void()> drained);

  // Hands `done` who holds which block, between two steps; for operators, since it
  // looks at every block. Called on the engine's thread, where it must not block;
  // destroyed without a call when the engine goes first.
  void DumpKv(absl::AnyInvocable<void(KvDump)> done);

  Load load() const;
  const model::Model& model() const;
  const kv::KvArena& arena() const;

  // Waits for the engine's thread and checks the pool; for tests and idle time.
  absl::Status CheckIntegrity();

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine
