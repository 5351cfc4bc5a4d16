// SPDX-License-Identifier: Apache-2.0
// Tokens of a step's rows are chosen at once by the model's threads, and are
// those that each sequence gets alone.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;

// A thread for each call of ForEach's function.
class ThreadedModel final : public GatedModel {
 public:
  ThreadedModel(std::unique_ptr<model::Model> model, Gate* gate, std::atomic<uint32_t>* most)
      : GatedModel(std::move(model), gate), most_(most) {}

  void ForEach(uint32_t count, absl::FunctionRef<void(uint32_t)> function) override {
    *most_ = std::max(most_->load(), count);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < count; ++i) threads.emplace_back([&, i] { function(i); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::atomic<uint32_t>* const most_;
};

// Every step of the chain, several choices, log-probabilities, and greedy ones.
std::vector<SequenceSpec> MixedSpecs(const FakeOptions& fake) {
  std::mt19937 random(4);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 9; ++key) {
    SequenceSpec spec = MakeSpec(key, RandomPrompt(random, 10 + 7 * key, fake), 40 + 3 * key);
    spec.choices = key % 4 == 0 ? 3 : 1;
    sampling::Params& params = spec.sampling;
    params.seed = key;
    params.temperature = key % 3 == 0 ? 0 : 0.9f;
    if (key % 2 == 0) params.top_k = 30;
    if (key > 4) params.top_p = 0.9f;
    if (key > 6) params.repetition_penalty = 1.2f;
    if (key % 2 == 1) params.logprobs = 2;
    specs.push_back(std::move(spec));
  }
  return specs;
}

TEST(SampleRows, TokensOfAStepAreThoseOfEachSequenceAlone) {
  const FakeOptions fake;
  const auto specs = MixedSpecs(fake);
  Recorder together_heard, alone_heard;
  Gate gate;
  std::atomic<uint32_t> most = 0;
  const auto together =
      EngineOf(std::make_unique<ThreadedModel>(*model::MakeFakeModel(fake), &gate, &most),
               PoolOf(256), &together_heard);
  SubmitTogether(*together, gate, specs);
  const auto alone = MakeEngine(fake, PoolOf(256), &alone_heard);
  for (const SequenceSpec& spec : specs) {
    alone->Submit(spec);
    ASSERT_TRUE(alone_heard.WaitForEnd(spec.ref));
    ASSERT_TRUE(together_heard.WaitForEnd(spec.ref));
    const Heard one = alone_heard.Of(spec.ref), many = together_heard.Of(spec.ref);
    ASSERT_EQ(one.choices.size(), many.choices.size());
    for (const auto& [choice, expected] : one.choices) {
      const HeardChoice& got = many.choices.at(choice);
      EXPECT_EQ(got.tokens, expected.tokens) << spec.ref.key << ", choice " << choice;
      EXPECT_EQ(got.finish, expected.finish);
      for (size_t i = 0; i < expected.samples.size(); ++i) {
        EXPECT_EQ(got.samples[i].logprobs.has_value(), spec.sampling.logprobs.has_value());
        if (!expected.samples[i].logprobs) continue;
        EXPECT_EQ(got.samples[i].logprobs->logprob, expected.samples[i].logprobs->logprob);
      }
    }
  }
  EXPECT_GE(most, specs.size());
  ExpectIdle(*together);
}

// The row of one sequence is of no use; the others' tokens stay what they are.
TEST(SampleRows, NanEndsItsSequenceAndNoOther) {
  FakeOptions fake;
  fake.nan_token = 5;
  Recorder heard;
  Gate gate;
  std::atomic<uint32_t> most = 0;
  const auto engine =
      EngineOf(std::make_unique<ThreadedModel>(*model::MakeFakeModel(fake), &gate, &most),
               PoolOf(256), &heard);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 6; ++key) {
    specs.push_back(MakeSpec(key, {9, 8, static_cast<TokenId>(10 + key)}, 3));
  }
  // Its second token is the one that spoils the row behind it.
  specs[2].sampling.logit_bias = {{5, 100.0f}};
  SubmitTogether(*engine, gate, specs);
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    const bool spoiled = spec.ref.key == specs[2].ref.key;
    EXPECT_EQ(heard.Of(spec.ref).end.status.code(),
              spoiled ? absl::StatusCode::kInternal : absl::StatusCode::kOk)
        << spec.ref.key;
    if (spoiled) continue;
    EXPECT_EQ(heard.Of(spec.ref).tokens, FakeReference(fake, spec.prompt, 3));
  }
  ExpectIdle(*engine);
}

}  // namespace
}  // namespace baton::engine
