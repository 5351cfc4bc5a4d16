// SPDX-License-Identifier: Apache-2.0
// What `baton kv-budget` says beside what engines take of their pools.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "client/cli/kv_arithmetic.h"
#include "tests/common/engine/harness.h"

namespace baton::cli {
namespace {

constexpr uint32_t kOutput = 900;

const kv::Window kWindows[] = {
    {},
    {.tokens = 64, .sinks = 32},
    {.tokens = 64, .sinks = 32, .stride = 128},
    {.tokens = 96, .stride = 64, .keep = {{{96, 160}, {320, 352}}}},
};

// The last token's KV is not computed.
uint64_t Budget(const kv::Window& window, uint32_t prompt, bool handed_over) {
  const KvQuestion question{.layers = 2,
                            .kv_heads = 2,
                            .head_dim = 16,
                            .context = prompt + kOutput - 1,
                            .window = window,
                            .prompt = handed_over ? 0 : prompt};
  const auto answer = ComputeKv(question);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer->blocks_per_sequence;
}

engine::SequenceSpec Spec(const kv::Window& window, uint32_t prompt, engine::Role role) {
  std::mt19937 random(3);
  auto spec = engine::MakeSpec(1, engine::RandomPrompt(random, prompt, {}), kOutput, role);
  spec.window = window;
  return spec;
}

// The most blocks that an engine's sequences hold, before and after each step.
class PeakOfBlocks final : public engine::Listener {
 public:
  void Look() {
    if (watched != nullptr) peak = std::max(peak.load(), watched->load().kv_blocks_requests);
  }
  void OnStep(const engine::StepOutput& output) override {
    Look();
    recorder.OnStep(output);
  }
  engine::Engine* watched = nullptr;
  std::atomic<uint32_t> peak = 0;
  engine::Recorder recorder;
};

class WatchedModel final : public engine::GatedModel {
 public:
  explicit WatchedModel(PeakOfBlocks* peak)
      : GatedModel(*model::MakeFakeModel({}), &gate_), peak_(peak) {}
  absl::Status Forward(std::span<const model::Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const model::LayerDone& layer_done) override {
    peak_->Look();
    return GatedModel::Forward(slices, arena, logits, layer_done);
  }

 private:
  engine::Gate gate_;
  PeakOfBlocks* const peak_;
};

TEST(KvBudget, IsTheMostThatASequenceHolds) {
  for (const kv::Window& window : kWindows) {
    for (const uint32_t prompt : {1u, 50u, 700u}) {
      PeakOfBlocks peak;
      const auto engine =
          engine::EngineOf(std::make_unique<WatchedModel>(&peak), engine::PoolOf(80), &peak);
      peak.watched = engine.get();
      engine->Submit(Spec(window, prompt, engine::Role::kWhole));
      ASSERT_TRUE(peak.recorder.WaitForEnd({1, 1}));
      EXPECT_TRUE(peak.recorder.Of({1, 1}).end.status.ok());
      EXPECT_EQ(Budget(window, prompt, false), peak.peak)
          << "prompt " << prompt << " window " << window.tokens << " stride " << window.stride;
      engine::ExpectIdle(*engine);
    }
  }
}

absl::StatusCode EndInPoolOf(uint64_t blocks, const engine::SequenceSpec& spec) {
  engine::Recorder recorder;
  const auto pool = engine::PoolOf(static_cast<uint32_t>(blocks));
  const auto engine = engine::MakeEngine({}, pool, &recorder);
  engine->Submit(spec);
  EXPECT_TRUE(recorder.WaitForEnd(spec.ref));
  return recorder.Of(spec.ref).end.status.code();
}

TEST(KvBudget, IsEnoughAndABlockLessIsNot) {
  for (const kv::Window& window : kWindows) {
    for (const uint32_t prompt : {50u, 700u}) {
      const auto spec = Spec(window, prompt, engine::Role::kWhole);
      const uint64_t blocks = Budget(window, prompt, false);
      EXPECT_EQ(EndInPoolOf(blocks, spec), absl::StatusCode::kOk);
      EXPECT_EQ(EndInPoolOf(blocks - 1, spec), absl::StatusCode::kResourceExhausted);
    }
  }
}

TEST(KvBudget, OfAPromptThatIsHandedOverIsWhatItsDecodeWorkerNeeds) {
  for (const kv::Window& window : kWindows) {
    const uint64_t blocks = Budget(window, 700, true);
    engine::Pair pair({}, engine::PoolOf(80), engine::PoolOf(static_cast<uint32_t>(blocks)));
    auto spec = Spec(window, 700, engine::Role::kWhole);
    spec.handoff_key = "h";
    pair.Submit(spec);
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    EXPECT_TRUE(pair.decode_heard.Of(spec.ref).end.status.ok());
    EXPECT_EQ(pair.Tokens(spec.ref).size(), kOutput);
    pair.ExpectIdle();
    EXPECT_EQ(EndInPoolOf(blocks - 1, Spec(window, 700, engine::Role::kDecode)),
              absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace baton::cli
