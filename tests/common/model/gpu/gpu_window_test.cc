// SPDX-License-Identifier: Apache-2.0
// Sequences with a window on the emulated GPU: in a fixed set of blocks they give
// what a float64 reference gives with everything else masked.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/model/gpu/gpu_model.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/model/gpu/random_llama.h"
#include "tests/common/model/masked_reference.h"
#include "tests/common/model/windowed_sequence.h"
#include "tests/testing/test_data.h"

namespace baton::model::gpu {
namespace {

constexpr std::array<kv::TokenRange, kv::Window::kMostKeep> kKept = {{{64, 128}}};
const kv::Window kWindows[] = {{64, 32}, {192, 32}, {64, 32, 96}, {32, 32, 160, kKept}};

std::unique_ptr<ModelRunner> WindowRunner(const checkpoint::Checkpoint& checkpoint, kv::KvType type,
                                          uint32_t blocks) {
  const auto device = ParseDevice(baton::testing::TestDevice());
  return std::make_unique<ModelRunner>(
      LoadGpuModel(checkpoint, LongContext("auto", Precision::kFast, type), *device), blocks);
}

// A text beyond every window, most of it in chunks, its end token by token.
class GpuWindowModelTest : public ::testing::TestWithParam<kv::KvType> {
 protected:
  void SetUp() override {
    const std::string path = folder_.path() + "/llama.gguf";
    checkpoint::WriteRandomLlama(path, 0, 0);
    auto opened = checkpoint::OpenCheckpoint(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    checkpoint_ = *std::move(opened);
  }

  const checkpoint::TempFolder folder_;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
};

TEST_P(GpuWindowModelTest, LogitsAreNearThoseOfTheMaskedReference) {
  constexpr uint32_t kTokens = 370, kPrompt = 350, kChunk = 70;
  const auto runner = WindowRunner(*checkpoint_, GetParam(), 24);
  ASSERT_TRUE(runner->ok());
  const auto tokens = RandomTokens(kTokens, runner->vocabulary(), 1);
  for (const kv::Window& window : kWindows) {
    if (BATON_SANITIZED && window.stride != 96) continue;  // sanitizers are slow
    runner->Reset();
    Sight sight{.window = window.tokens, .sinks = window.sinks, .stride = window.stride};
    if (window.keep[0].end > 0) sight.keep = {{window.keep[0].begin, window.keep[0].end}};
    MaskedReference reference(*checkpoint_, sight), unmasked(*checkpoint_, {});
    WindowedSequence sequence(*runner, window, kChunk, kTokens);
    double size = 0, error = 0, other = 0;
    for (uint32_t at = 0; at < kTokens;) {
      const uint32_t count = at < kPrompt ? kChunk : 1;
      const auto logits = sequence.Feed(std::span(tokens).subspan(at, count));
      for (uint32_t i = 0; i < count; ++i) {
        const std::vector<double> expected = reference.Next(tokens[at + i]);
        const std::vector<double> whole = unmasked.Next(tokens[at + i]);
        for (size_t v = 0; v < expected.size(); ++v) {
          size += expected[v] * expected[v];
          error += std::pow(logits[i * expected.size() + v] - expected[v], 2);
          other += std::pow(whole[v] - expected[v], 2);
        }
      }
      at += count;
    }
    std::printf("window %u: relative error %.5f, without the mask %.5f\n", window.tokens,
                std::sqrt(error / size), std::sqrt(other / size));
    EXPECT_LT(std::sqrt(error / size), 0.02) << window.tokens << " / " << window.stride;
    EXPECT_GT(other, 9 * error) << "a text that shows no mask";
  }
}

TEST_P(GpuWindowModelTest, BitsAreTheSameInEveryChunkAndPool) {
  constexpr uint32_t kTokens = 330, kPrompt = 310;
  const auto runner = WindowRunner(*checkpoint_, GetParam(), 24);
  ASSERT_TRUE(runner->ok());
  const auto tokens = RandomTokens(kTokens, runner->vocabulary(), 3);
  for (const kv::Window& window : {kv::Window{96, 32}, kv::Window{32, 0, 96, kKept}}) {
    std::vector<float> expected;
    for (const uint32_t chunk : {kTokens, 100u, 33u}) {
      if (BATON_SANITIZED && chunk == 33) continue;
      runner->Reset();
      WindowedSequence sequence(*runner, window, chunk, kTokens);
      std::vector<float> logits;
      for (uint32_t at = 0; at < kTokens;) {  // the end token by token
        const uint32_t count = chunk == kTokens ? kTokens
                               : at < kPrompt   ? std::min(chunk, kPrompt - at)
                                                : 1;
        const auto part = sequence.Feed(std::span(tokens).subspan(at, count));
        logits.insert(logits.end(), part.begin(), part.end());
        at += count;
      }
      if (expected.empty()) expected = logits;
      EXPECT_TRUE(logits == expected) << "chunk " << chunk << ", stride " << window.stride;
    }
  }
}

// Beside sequences without a window, in one step and in replayed graphs.
TEST_P(GpuWindowModelTest, BitsAreTheSameInEveryBatch) {
  const auto runner = WindowRunner(*checkpoint_, GetParam(), 64);
  ASSERT_TRUE(runner->ok());
  const kv::Window window{64, 32};
  constexpr uint32_t kPrompt = 290, kSteps = 6;
  const auto text = RandomTokens(kPrompt + kSteps, runner->vocabulary(), 4);
  const auto other = RandomTokens(kPrompt, runner->vocabulary(), 5);
  WindowedSequence alone(*runner, window, kPrompt, 300);
  alone.Feed(std::span(text).first(kPrompt));
  TestSequence beside = runner->NewSequence(300), windowed = runner->NewSequence(300);
  runner->Feed(beside, std::span(other).first(kPrompt - kSteps), 1024, LogitRows::kNone);
  Slice slice{std::span(text).first(kPrompt), 0, windowed.blocks, LogitRows::kNone, window};
  ASSERT_TRUE(runner->model().Forward({&slice, 1}, runner->arena(), {}, nullptr).ok());
  for (uint32_t i = 0; i < kSteps; ++i) {
    const auto expected = alone.Feed(std::span(text).subspan(kPrompt + i, 1));
    const Slice slices[] = {{std::span(other).subspan(kPrompt - kSteps + i, 1),
                             kPrompt - kSteps + i, beside.blocks, LogitRows::kLast},
                            {std::span(text).subspan(kPrompt + i, 1), kPrompt + i, windowed.blocks,
                             LogitRows::kLast, window}};
    std::vector<float> logits(2 * size_t{runner->vocabulary()});
    ASSERT_TRUE(runner->model().Forward(slices, runner->arena(), logits, nullptr).ok());
    logits.erase(logits.begin(), logits.begin() + runner->vocabulary());
    EXPECT_TRUE(logits == expected) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(KvTypes, GpuWindowModelTest,
                         ::testing::Values(kv::KvType::kBf16, kv::KvType::kInt8),
                         [](const auto& test) { return std::string(KvTypeName(test.param)); });

}  // namespace
}  // namespace baton::model::gpu
