// SPDX-License-Identifier: Apache-2.0
// The engine on the emulated GPU (or a real one: $BATON_TEST_DEVICE): tokens are the same
// whether the device chooses them and runs ahead, or gives logits step by step.
#include <gtest/gtest.h>

#include "common/checkpoint/checkpoint.h"
#include "common/model/gpu/gpu_model.h"
#include "tests/common/engine/harness.h"
#include "tests/testing/test_data.h"

namespace baton::engine {
namespace {

std::unique_ptr<model::Model> OnGpu() {
  auto checkpoint = checkpoint::OpenCheckpoint("embedded");
  model::LoadOptions load;
  load.threads = 1;
  auto model = model::gpu::LoadGpuModel(**checkpoint, load,
                                        *model::gpu::ParseDevice(baton::testing::TestDevice()));
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// Shows Forward alone.
class StepByStep final : public model::Model {
 public:
  explicit StepByStep(std::unique_ptr<model::Model> model) : model_(std::move(model)) {}
  const model::ModelInfo& info() const override { return model_->info(); }
  const kv::KvLayout& kv_layout() const override { return model_->kv_layout(); }
  uint32_t max_step_tokens() const override { return model_->max_step_tokens(); }
  absl::Status Attach(kv::KvArena& arena) override { return model_->Attach(arena); }
  absl::Status Forward(std::span<const model::Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const model::LayerDone& layer_done) override {
    return model_->Forward(slices, arena, logits, layer_done);
  }

 private:
  std::unique_ptr<model::Model> model_;
};

std::vector<SequenceSpec> Specs(bool mixed) {
  std::mt19937 random(5);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 4; ++key) {
    std::vector<TokenId> prompt(22 + 2 * key);
    for (TokenId& token : prompt) token = 3 + random() % 600;
    specs.push_back(MakeSpec(key, std::move(prompt), 45));
    if (key % 2 == 0) specs.back().sampling = {.temperature = 0.9f, .top_p = 0.95f, .seed = key};
  }
  specs[3].stop_tokens = {2, 40, 50, 60};
  if (!mixed) return specs;
  specs[1].choices = 2;
  specs[2].sampling.logprobs = 1;
  specs[3].sampling.repetition_penalty = 1.2f;
  return specs;
}

TEST(GpuEngine, TokensAreTheSameWhenTheDeviceRunsAhead) {
  for (const bool mixed : {false, true}) {
    if (mixed && BATON_SANITIZED) continue;  // sanitizers are slow
    const std::vector<SequenceSpec> specs = Specs(mixed);
    Options options = PoolOf(6);  // some are put aside
    options.chunk_tokens = 32;
    options.swap_bytes = uint64_t{64} << 20;
    Recorder heard[2];
    for (const bool ahead : {false, true}) {
      std::unique_ptr<model::Model> model = OnGpu();
      if (!ahead) model = std::make_unique<StepByStep>(std::move(model));
      const auto engine = EngineOf(std::move(model), options, &heard[ahead]);
      for (const SequenceSpec& spec : specs) engine->Submit(spec);
      for (const SequenceSpec& spec : specs) {
        ASSERT_TRUE(heard[ahead].WaitForEnd(spec.ref, absl::Seconds(100)));
      }
      const Load load = engine->load();
      EXPECT_GT(load.preemptions, 0u);
      EXPECT_EQ(load.steps_ahead > 20, ahead) << load.steps_ahead;
      ExpectIdle(*engine);
    }
    for (const SequenceSpec& spec : specs) {
      const Heard one = heard[0].Of(spec.ref), other = heard[1].Of(spec.ref);
      EXPECT_TRUE(other.end.status.ok()) << other.end.status;
      EXPECT_EQ(one.end.reason, other.end.reason);
      ASSERT_EQ(one.choices.size(), other.choices.size());
      for (const auto& [index, choice] : one.choices) {
        EXPECT_EQ(choice.tokens, other.choices.at(index).tokens) << spec.ref.key;
        EXPECT_EQ(choice.finish, other.choices.at(index).finish);
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine
