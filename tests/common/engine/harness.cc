// SPDX-License-Identifier: Apache-2.0
#include "tests/common/engine/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace baton::engine {
namespace {

// Shares nothing with the engine's thread: the reference count inside a Status
// is partly hidden in a library that the thread sanitizer does not see.
absl::Status Copy(const absl::Status& status) { return {status.code(), status.message()}; }

}  // namespace

void HeardChoice::Take(const TokenOutput& token) {
  EXPECT_EQ(finish, FinishReason::kNone) << "a token after the end of choice " << token.choice;
  if (tokens.empty()) first_index = token.index;
  EXPECT_EQ(token.index, first_index + tokens.size()) << "choice " << token.choice;
  tokens.push_back(token.sample.token);
  samples.push_back(token.sample);
  finish = token.finish;
  score = token.score;
}

void Recorder::OnStep(const StepOutput& output) {
  {
    const std::lock_guard lock(mutex_);
    for (const StartOutput& start : output.started) {
      heard_[start.ref].start = start.start;
      heard_[start.ref].cached = start.cached_prompt_tokens;
    }
    for (const PromptLogprobsOutput& scored : output.prompt_logprobs) {
      std::vector<sampling::TokenLogprobs>& all = heard_[scored.ref].prompt_logprobs;
      EXPECT_EQ(scored.first_index, all.size() + 1);
      all.insert(all.end(), scored.logprobs.begin(), scored.logprobs.end());
    }
    for (const TokenOutput& token : output.tokens) {
      Heard& heard = heard_[token.ref];
      EXPECT_EQ(heard.ends, 0u) << "a token after the end";
      heard.choices[token.choice].Take(token);
      if (token.choice == 0) {
        heard.tokens.push_back(token.sample.token);
        heard.indices.push_back(token.index);
        heard.samples.push_back(token.sample);
      }
      if (token.prefill_end) heard.prefill_end = token.prefill_end;
      if (token.first_step_start) heard.first_step_start = token.first_step_start;
    }
    for (const EndOutput& end : output.ends) {
      Heard& heard = heard_[end.ref];
      ++heard.ends;
      heard.end = end;
      heard.end.status = Copy(end.status);
    }
  }
  changed_.notify_all();
}

bool Recorder::WaitFor(const std::function<bool()>& condition, absl::Duration patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoMilliseconds(patience), condition);
}

bool Recorder::WaitForEnd(SequenceRef ref, absl::Duration patience) {
  return WaitFor([&] { return heard_[ref].ends > 0; }, patience);
}

bool Recorder::WaitForTokens(SequenceRef ref, size_t count, absl::Duration patience) {
  return WaitFor([&] { return heard_[ref].tokens.size() >= count; }, patience);
}

Heard Recorder::Of(SequenceRef ref) {
  const std::lock_guard lock(mutex_);
  return heard_[ref];
}

size_t Recorder::ended() {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(
      heard_.begin(), heard_.end(), [](const auto& entry) { return entry.second.ends > 0; }));
}

void Recorder::Forget() {
  const std::lock_guard lock(mutex_);
  heard_.clear();
}

LoopbackSender::LoopbackSender() : thread_([this] { Run(); }) {}

LoopbackSender::~LoopbackSender() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    frozen_ = false;
  }
  changed_.notify_all();
  thread_.join();
}

void LoopbackSender::Connect(Engine* prefill, Engine* decode) {
  prefill_ = prefill;
  decode_ = decode;
  decode_->SetReservationCancelled([this](SequenceRef ref) {
    Post([this, ref] { Finish(ref, absl::CancelledError("cancelled by the receiver")); });
  });
}

void LoopbackSender::SetFrozen(bool frozen) {
  {
    const std::lock_guard lock(mutex_);
    frozen_ = frozen;
  }
  changed_.notify_all();
}

void LoopbackSender::FailCommits(absl::Status status) {
  const std::lock_guard lock(mutex_);
  commit_failure_ = std::move(status);
}

LoopbackSender::Calls LoopbackSender::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void LoopbackSender::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void LoopbackSender::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || (!frozen_ && !tasks_.empty()); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void LoopbackSender::Begin(const SequenceSpec& spec) {
  {
    const std::lock_guard lock(mutex_);
    ++calls_.begins;
  }
  const SequenceRef ref = spec.ref;
  const auto prompt_tokens = static_cast<uint32_t>(spec.prompt.size());
  Post([this, ref, prompt_tokens] {
    handoffs_[ref] = Handoff();
    decode_->Reserve(ref, prompt_tokens, kv::KvOrigin::kOwn, [this, ref](auto reservation) {
      Post([this, ref, reservation = std::move(reservation)] {
        if (!reservation.ok()) return Finish(ref, reservation.status());
        if (handoffs_[ref].done) {
          return decode_->ReleaseReservation(ref, absl::CancelledError("given up"));
        }
        handoffs_[ref].target = *reservation;
        Pump(ref);
      });
    });
  });
}

void LoopbackSender::BlocksReady(SequenceRef ref, uint32_t first_block,
                                 std::vector<kv::BlockId> blocks) {
  {
    const std::lock_guard lock(mutex_);
    calls_.blocks += static_cast<uint32_t>(blocks.size());
  }
  Post([this, ref, ready = Ready{first_block, std::move(blocks)}] {
    handoffs_[ref].ready.push_back(ready);
    Pump(ref);
  });
}

void LoopbackSender::Commit(SequenceRef ref, const HandoffState& state) {
  {
    const std::lock_guard lock(mutex_);
    ++calls_.commits;
  }
  Post([this, ref, state] {
    handoffs_[ref].commit = state;
    Pump(ref);
  });
}

void LoopbackSender::Abort(SequenceRef ref, const absl::Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    ++calls_.aborts;
  }
  Post([this, ref, reason] { Finish(ref, reason); });
}

void LoopbackSender::Copy(Handoff& handoff) {
  for (const Ready& ready : std::exchange(handoff.ready, {})) {
    for (size_t i = 0; i < ready.blocks.size(); ++i) {
      if (ready.first + i < handoff.target->first_block) continue;  // is there
      const kv::BlockId target =
          handoff.target->blocks[ready.first + i - handoff.target->first_block];
      for (uint32_t layer = 0; layer < prefill_->arena().layout().layers; ++layer) {
        const auto from = prefill_->arena().LayerSpan(ready.blocks[i], layer);
        const auto to = decode_->arena().LayerSpan(target, layer);
        std::copy(from.begin(), from.end(), to.begin());
        handoff.bytes += from.size();
      }
    }
  }
}

void LoopbackSender::Pump(SequenceRef ref) {
  Handoff& handoff = handoffs_[ref];
  if (handoff.done || handoff.activating || !handoff.target) return;
  Copy(handoff);
  if (!handoff.commit) return;
  absl::Status failure;
  {
    const std::lock_guard lock(mutex_);
    failure = commit_failure_;
  }
  if (!failure.ok()) return Finish(ref, failure);
  handoff.activating = true;
  decode_->Activate(ref, *handoff.commit, [this, ref](const absl::Status& status) {
    Post([this, ref, status] {
      handoffs_[ref].done = true;
      prefill_->HandoffDone(ref, status, "loopback", handoffs_[ref].bytes);
    });
  });
}

void LoopbackSender::Finish(SequenceRef ref, const absl::Status& status) {
  Handoff& handoff = handoffs_[ref];
  if (handoff.done || handoff.activating) return;
  handoff.done = true;
  if (handoff.target || status.code() != absl::StatusCode::kNotFound) {
    decode_->ReleaseReservation(ref, status);
  }
  prefill_->HandoffDone(ref, status, "loopback", handoff.bytes);
}

Pair::Pair(const model::FakeOptions& model, const Options& prefill_options,
           const Options& decode_options)
    : decode(MakeEngine(model, decode_options, &decode_heard)),
      prefill(MakeEngine(model, prefill_options, &prefill_heard, &sender)) {
  sender.Connect(prefill.get(), decode.get());
}

Pair::Pair(std::unique_ptr<model::Model> prefill_model, const Options& prefill_options,
           std::unique_ptr<model::Model> decode_model, const Options& decode_options)
    : decode(EngineOf(std::move(decode_model), decode_options, &decode_heard)),
      prefill(EngineOf(std::move(prefill_model), prefill_options, &prefill_heard, &sender)) {
  sender.Connect(prefill.get(), decode.get());
}

Pair::~Pair() {
  sender.SetFrozen(false);
  prefill.reset();
  decode.reset();
}

void Pair::Submit(const SequenceSpec& spec) {
  SequenceSpec end = spec;
  end.role = Role::kDecode;
  decode->Submit(end);
  end.role = Role::kPrefill;
  prefill->Submit(end);
}

void Pair::Cancel(SequenceRef ref) {
  prefill->Cancel(ref, absl::CancelledError("cancelled by the test"));
  decode->Cancel(ref, absl::CancelledError("cancelled by the test"));
}

std::vector<TokenId> Pair::Tokens(SequenceRef ref) {
  std::vector<TokenId> tokens = prefill_heard.Of(ref).tokens;
  const Heard rest = decode_heard.Of(ref);
  tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
  return tokens;
}

bool Pair::WaitForEnd(SequenceRef ref) {
  if (!prefill_heard.WaitForEnd(ref)) return false;
  // Without a hand-off a router calls the other end off.
  if (!prefill_heard.Of(ref).end.handed_off) {
    decode->Cancel(ref, absl::CancelledError("no hand-off"));
  }
  return decode_heard.WaitForEnd(ref);
}

void Pair::ExpectIdle() {
  engine::ExpectIdle(*prefill);
  engine::ExpectIdle(*decode);
}

void Gate::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  step_waits_ = false;
}

void Gate::Open() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = false;
  }
  changed_.notify_all();
}

bool Gate::WaitForStep() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return step_waits_; });
}

void Gate::Pass() {
  std::unique_lock lock(mutex_);
  if (!closed_) return;
  step_waits_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !closed_; });
}

void SubmitTogether(Engine& engine, Gate& gate, const std::vector<SequenceSpec>& specs) {
  gate.Close();
  for (const SequenceSpec& spec : specs) engine.Submit(spec);
  gate.Open();
}

Options PoolOf(uint32_t blocks) {
  Options options;
  options.kv_blocks = blocks;
  return options;
}

std::unique_ptr<model::Model> FakeFor(model::FakeOptions options) {
  options.queues |= getenv("BATON_TEST_QUEUES") != nullptr;
  auto fake = model::MakeFakeModel(options);
  EXPECT_TRUE(fake.ok()) << fake.status();
  return *std::move(fake);
}

std::unique_ptr<Engine> MakeEngine(const model::FakeOptions& options, const Options& engine_options,
                                   Listener* listener, HandoffSender* sender, Gate* gate) {
  std::unique_ptr<model::Model> model = FakeFor(options);
  if (gate != nullptr) model = std::make_unique<GatedModel>(std::move(model), gate);
  return EngineOf(std::move(model), engine_options, listener, sender);
}

std::unique_ptr<Engine> EngineOf(std::unique_ptr<model::Model> model, const Options& options,
                                 Listener* listener, HandoffSender* sender) {
  auto engine = Engine::Create(std::move(model), options, listener, sender);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

void ExpectIdle(Engine& engine) {
  const auto idle = [&engine] {
    const Load load = engine.load();
    return load.waiting_sequences == 0 && load.running_sequences == 0 &&
           load.queued_prompt_tokens == 0 && load.kv_blocks_requests == 0 &&
           load.kv_blocks_transfers == 0 &&
           load.kv_blocks_free + load.kv_blocks_reclaimable == load.kv_blocks_total;
  };
  EXPECT_TRUE(Eventually(idle, absl::Seconds(5)));
  EXPECT_TRUE(engine.CheckIntegrity().ok()) << engine.CheckIntegrity();
}

bool Eventually(const std::function<bool()>& condition, absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Microseconds(200));
  }
  return true;
}

std::vector<TokenId> RandomPrompt(std::mt19937& random, size_t length,
                                  const model::FakeOptions& model) {
  std::vector<TokenId> prompt(length);
  for (TokenId& token : prompt) token = static_cast<TokenId>(random() % model.vocabulary_size);
  return prompt;
}

SequenceSpec MakeSpec(uint64_t key, std::vector<TokenId> prompt, uint32_t max_tokens, Role role) {
  SequenceSpec spec;
  spec.ref = {1, key};
  spec.role = role;
  spec.prompt = std::move(prompt);
  spec.max_tokens = max_tokens;
  return spec;
}

}  // namespace baton::engine
