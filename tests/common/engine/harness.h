// SPDX-License-Identifier: Apache-2.0
// Engines in one process: a listener that records, and a hand-off that copies
// blocks from one engine's arena into another's on a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/engine/engine.h"
#include "common/model/fake/fake_model.h"
#include "common/model/step_queue.h"

namespace baton::engine {

// Of one choice of a sequence.
struct HeardChoice {
  std::vector<TokenId> tokens;
  uint32_t first_index = 0;
  std::vector<sampling::Sample> samples;
  FinishReason finish = FinishReason::kNone;
  std::optional<double> score;

  // Fails the test when a token is not next to the last one, or comes after the end.
  void Take(const TokenOutput& token);
};

// Everything heard of one sequence; tokens are those of choice 0.
struct Heard {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> indices;
  std::vector<sampling::Sample> samples;
  std::map<uint32_t, HeardChoice> choices;
  std::vector<sampling::TokenLogprobs> prompt_logprobs;
  std::optional<absl::Time> start, prefill_end, first_step_start;
  uint32_t cached = 0;  // prompt tokens
  uint32_t ends = 0;
  EndOutput end;  // the last one
};

// Thread-safe.
class Recorder final : public Listener {
 public:
  void OnStep(const StepOutput& output) override;

  // False when it takes longer than `patience`.
  bool WaitForEnd(SequenceRef ref, absl::Duration patience = absl::Seconds(20));
  bool WaitForTokens(SequenceRef ref, size_t count, absl::Duration patience = absl::Seconds(20));
  Heard Of(SequenceRef ref);
  size_t ended();
  void Forget();  // everything

 private:
  bool WaitFor(const std::function<bool()>& condition, absl::Duration patience);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<SequenceRef, Heard> heard_;
};

// Hand-offs between two engines of this process; a sequence has the same
// reference on both. Everything runs on a thread of its own, like a transport.
class LoopbackSender final : public HandoffSender {
 public:
  LoopbackSender();
  ~LoopbackSender() override;

  // Before the first sequence. Both must be destroyed before this object, the
  // prefill engine first.
  void Connect(Engine* prefill, Engine* decode);

  // While frozen nothing happens; what is asked for meanwhile happens later.
  void SetFrozen(bool frozen);
  // Commits fail with this status, without reaching the decode engine.
  void FailCommits(absl::Status status);

  void Begin(const SequenceSpec& spec) override;
  void BlocksReady(SequenceRef ref, uint32_t first_block, std::vector<kv::BlockId> blocks) override;
  void Commit(SequenceRef ref, const HandoffState& state) override;
  void Abort(SequenceRef ref, const absl::Status& reason) override;

  // Counts of calls by the prefill engine.
  struct Calls {
    uint32_t begins = 0, blocks = 0, commits = 0, aborts = 0;
  };
  Calls calls();

 private:
  struct Ready {
    uint32_t first = 0;
    std::vector<kv::BlockId> blocks;
  };
  struct Handoff {
    std::optional<Engine::Reservation> target;  // granted
    std::vector<Ready> ready;
    std::optional<HandoffState> commit;
    bool activating = false;
    bool done = false;
    uint64_t bytes = 0;
  };

  void Post(std::function<void()> task);
  void Run();
  void Pump(SequenceRef ref);
  void Finish(SequenceRef ref, const absl::Status& status);
  void Copy(Handoff& handoff);

  Engine* prefill_ = nullptr;
  Engine* decode_ = nullptr;
  std::map<SequenceRef, Handoff> handoffs_;  // of the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool frozen_ = false;
  bool stopping_ = false;
  absl::Status commit_failure_;
  Calls calls_;
  std::thread thread_;
};

// A prefill and a decode engine with a hand-off between them.
struct Pair {
  Pair(const model::FakeOptions& model, const Options& prefill_options,
       const Options& decode_options);
  Pair(std::unique_ptr<model::Model> prefill_model, const Options& prefill_options,
       std::unique_ptr<model::Model> decode_model, const Options& decode_options);
  ~Pair();

  // Submits to both ends.
  void Submit(const SequenceSpec& spec);
  void Cancel(SequenceRef ref);
  // Tokens of both ends in order, as a router would merge them.
  std::vector<TokenId> Tokens(SequenceRef ref);
  bool WaitForEnd(SequenceRef ref);
  // Checks that nothing is held on either end.
  void ExpectIdle();

  LoopbackSender sender;
  Recorder prefill_heard, decode_heard;
  std::unique_ptr<Engine> decode, prefill;
};

// Holds a model's steps back while it is closed. Thread-safe.
class Gate final {
 public:
  void Close();
  void Open();
  // Returns once a step has begun since the gate was closed, or false.
  bool WaitForStep();
  // Called by the model at the beginning of each step.
  void Pass();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  bool step_waits_ = false;
};

// A model whose steps begin with the gate; both must outlive it.
class GatedModel : public model::Model {
 public:
  GatedModel(std::unique_ptr<model::Model> model, Gate* gate)
      : model_(std::move(model)), gate_(gate) {}

  const model::ModelInfo& info() const override { return model_->info(); }
  const kv::KvLayout& kv_layout() const override { return model_->kv_layout(); }
  uint32_t max_step_tokens() const override { return model_->max_step_tokens(); }
  absl::Status Forward(std::span<const model::Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const model::LayerDone& layer_done) override {
    gate_->Pass();
    return model_->Forward(slices, arena, logits, layer_done);
  }
  void ForEach(uint32_t count, absl::FunctionRef<void(uint32_t)> function) override {
    model_->ForEach(count, function);
  }
  model::StepQueue* queue() override { return model_->queue() == nullptr ? nullptr : &queue_; }

 private:
  // Steps begin when they are started.
  class Queue final : public model::StepQueue {
   public:
    explicit Queue(GatedModel& owner) : owner_(owner) {}
    bool Chooses(const sampling::Params& params) const override {
      return owner_.model_->queue()->Chooses(params);
    }
    absl::Status Start(std::span<const model::Slice> slices, const kv::KvArena& arena) override {
      owner_.gate_->Pass();
      return owner_.model_->queue()->Start(slices, arena);
    }
    absl::StatusOr<model::StepResults> Collect() override {
      return owner_.model_->queue()->Collect();
    }

   private:
    GatedModel& owner_;
  };

  std::unique_ptr<model::Model> model_;
  Gate* gate_;
  Queue queue_{*this};
};

// Submits all at once: they are in the second step together, if not in the first.
void SubmitTogether(Engine& engine, Gate& gate, const std::vector<SequenceSpec>& specs);

// Bytes of a block of FakeOptions().
constexpr uint64_t kFakeBlock = uint64_t{2} * 2 * 2 * 32 * 16 * 4;

// With a pool of so many blocks; all else as it is by default.
Options PoolOf(uint32_t blocks);

// A fake model; with $BATON_TEST_QUEUES set one that has a queue, so that the tests of
// the engine show the same of both.
std::unique_ptr<model::Model> FakeFor(model::FakeOptions options);

// `gate`, when given, must outlive the engine.
std::unique_ptr<Engine> MakeEngine(const model::FakeOptions& model, const Options& options,
                                   Listener* listener, HandoffSender* sender = nullptr,
                                   Gate* gate = nullptr);

// Of any model.
std::unique_ptr<Engine> EngineOf(std::unique_ptr<model::Model> model, const Options& options,
                                 Listener* listener, HandoffSender* sender = nullptr);

// Fails the test when blocks are held or sequences left, after a short wait.
void ExpectIdle(Engine& engine);

// Polls; for states that announce themselves in no other way.
bool Eventually(const std::function<bool()>& condition,
                absl::Duration patience = absl::Seconds(20));

std::vector<TokenId> RandomPrompt(std::mt19937& random, size_t length,
                                  const model::FakeOptions& model);
SequenceSpec MakeSpec(uint64_t key, std::vector<TokenId> prompt, uint32_t max_tokens,
                      Role role = Role::kWhole);

}  // namespace baton::engine
