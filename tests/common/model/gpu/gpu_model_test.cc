// SPDX-License-Identifier: Apache-2.0
// Whole models on the emulated GPU (or a real one: $BATON_TEST_DEVICE) against goldens and against
// the CPU.
#include "common/model/gpu/gpu_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "common/base/crc32c.h"
#include "common/kv/block_file.h"
#include "common/kv/swap_area.h"
#include "nlohmann/json.hpp"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/model/gpu/random_llama.h"
#include "tests/common/model/kv_continuation.h"
#include "tests/common/model/model_runner.h"
#include "tests/testing/environment.h"
#include "tests/testing/test_data.h"

namespace baton::model::gpu {
namespace {

using baton::testing::TestData;

constexpr uint32_t kBlocks = 96;

DeviceName TheDevice() { return *ParseDevice(baton::testing::TestDevice()); }

absl::StatusOr<std::unique_ptr<Model>> LoadOn(const DeviceName& device, const std::string& path,
                                              const LoadOptions& options) {
  auto checkpoint = checkpoint::OpenCheckpoint(path);
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadGpuModel(**checkpoint, options, device);
}

LoadOptions Fast(kv::KvType type = kv::KvType::kBf16) {
  LoadOptions options = Options("auto", Precision::kFast, 1);
  options.kv_type = type;
  return options;
}

std::unique_ptr<ModelRunner> Runner(const std::string& path, const LoadOptions& options) {
  return std::make_unique<ModelRunner>(LoadOn(TheDevice(), path, options), kBlocks);
}

nlohmann::json Golden() {
  std::ifstream file(TestData("own-glm/golden.json"));
  return nlohmann::json::parse(file);
}

class GpuModelTest : public ::testing::TestWithParam<kv::KvType> {};

TEST_P(GpuModelTest, OwnGlmAnswersEveryCase) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  const auto golden = Golden();
  ASSERT_GT(golden["cases"].size(), 5u);
  size_t left = BATON_SANITIZED ? 3 : golden["cases"].size();  // sanitizers are slow
  for (const auto& item : golden["cases"]) {
    if (left-- == 0) break;
    const auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(runner->Greedy(item["prompt_ids"].get<std::vector<TokenId>>(),
                             static_cast<uint32_t>(greedy.size())),
              greedy)
        << item["text"];
  }
}

TEST_P(GpuModelTest, LogitsAreNearThoseOfExactArithmetic) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ModelRunner exact("embedded", Options("auto", Precision::kExact, 1), kBlocks);
  ASSERT_TRUE(runner->ok() && exact.ok());
  const auto item = Golden()["cases"][9];
  auto tokens = item["prompt_ids"].get<std::vector<TokenId>>();
  const auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
  tokens.insert(tokens.end(), greedy.begin(), greedy.end() - 1);
  const auto length = static_cast<uint32_t>(tokens.size());
  TestSequence on_gpu = runner->NewSequence(length), on_cpu = exact.NewSequence(length);
  const auto logits = runner->Feed(on_gpu, tokens, 1024, LogitRows::kAll);
  const auto expected = exact.Feed(on_cpu, tokens, 1024, LogitRows::kAll);
  const double kl = MeanKl(expected, logits, runner->vocabulary());
  std::printf("mean KL over %u positions: %.6f\n", length, kl);
  EXPECT_LT(kl, 1e-3);
}

// Any chunk, any block order, decoded or not.
TEST_P(GpuModelTest, BitsAreTheSameInEveryChunk) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  constexpr uint32_t kTokens = 268, kPrompt = 245;
  const auto tokens = RandomTokens(kTokens, runner->vocabulary(), 3);
  TestSequence whole = runner->NewSequence(kTokens, 1);
  const auto expected = runner->Feed(whole, tokens, 1024, LogitRows::kAll);
  runner->Reset();
  TestSequence sequence = runner->NewSequence(kTokens, 2);
  auto logits = runner->Feed(sequence, std::span(tokens).first(kPrompt), 31, LogitRows::kAll);
  const auto decoded =
      runner->Feed(sequence, std::span(tokens).subspan(kPrompt), 1, LogitRows::kAll);
  logits.insert(logits.end(), decoded.begin(), decoded.end());
  EXPECT_TRUE(logits == expected);
}

// Decoding and prompts of several sequences in one step.
TEST_P(GpuModelTest, BitsAreTheSameInEveryBatch) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  const uint32_t vocabulary = runner->vocabulary();
  const std::vector<std::vector<TokenId>> texts = {
      RandomTokens(40, vocabulary, 1), RandomTokens(70, vocabulary, 2),
      RandomTokens(33, vocabulary, 3), RandomTokens(261, vocabulary, 4)};
  // The last token, or the last 20, of each are computed together.
  const std::vector<uint32_t> last = {1, 20, 1, 1};
  std::vector<float> alone;
  std::vector<TestSequence> sequences;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto head = std::span(texts[i]).first(texts[i].size() - last[i]);
    const auto tail = std::span(texts[i]).subspan(head.size());
    TestSequence one = runner->NewSequence(300), other = runner->NewSequence(300);
    runner->Feed(one, head, 1024, LogitRows::kNone);
    const auto logits = runner->Feed(one, tail, 1024, LogitRows::kAll);
    alone.insert(alone.end(), logits.begin(), logits.end());
    runner->Feed(other, head, 64, LogitRows::kNone);
    sequences.push_back(std::move(other));
  }
  std::vector<Slice> slices;
  for (size_t i = 0; i < texts.size(); ++i) {
    slices.push_back({std::span(texts[i]).last(last[i]), sequences[i].length, sequences[i].blocks,
                      LogitRows::kAll});
  }
  std::vector<float> together(alone.size());
  ASSERT_TRUE(runner->model().Forward(slices, runner->arena(), together, nullptr).ok());
  EXPECT_TRUE(together == alone);
}

// Decoding replays graphs of rounded sizes: others' rows, blocks and positions
// must not stay in them. Three and five sequences are padded to four and eight.
TEST_P(GpuModelTest, ReplayedGraphsComputeTheStepAtHand) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  constexpr uint32_t kSteps = 4;
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::vector<float>> expected;  // of the last kSteps tokens
  std::vector<TestSequence> sequences;
  for (uint32_t i = 0; i < 5; ++i) {
    texts.push_back(RandomTokens(20 + 13 * i, runner->vocabulary(), 20 + i));
    TestSequence whole = runner->NewSequence(100);
    const auto logits = runner->Feed(whole, texts[i], 1024, LogitRows::kAll);
    expected.emplace_back(logits.end() - kSteps * runner->vocabulary(), logits.end());
    sequences.push_back(runner->NewSequence(100));
    runner->Feed(sequences[i], std::span(texts[i]).first(texts[i].size() - kSteps), 1024,
                 LogitRows::kNone);
  }
  // The last two join after the first step, in another order.
  const std::vector<std::vector<uint32_t>> batches = {{0, 1, 2}, {4, 2, 0, 3, 1}, {1, 3, 4, 0, 2}};
  std::vector<uint32_t> done(5);
  for (const std::vector<uint32_t>& batch : batches) {
    std::vector<Slice> slices;
    for (uint32_t i : batch) {
      const auto& text = texts[i];
      slices.push_back({std::span(text).subspan(text.size() - kSteps + done[i], 1),
                        sequences[i].length, sequences[i].blocks, LogitRows::kLast});
    }
    std::vector<float> logits(batch.size() * runner->vocabulary());
    ASSERT_TRUE(runner->model().Forward(slices, runner->arena(), logits, nullptr).ok());
    for (size_t row = 0; row < batch.size(); ++row) {
      const uint32_t i = batch[row];
      const auto width = static_cast<std::ptrdiff_t>(runner->vocabulary());
      EXPECT_TRUE(std::equal(logits.begin() + static_cast<std::ptrdiff_t>(row) * width,
                             logits.begin() + static_cast<std::ptrdiff_t>(row + 1) * width,
                             expected[i].begin() + done[i] * width))
          << "sequence " << i << ", step " << done[i];
      ++done[i];
      ++sequences[i].length;
    }
  }
  EXPECT_EQ(dynamic_cast<const GpuModel&>(runner->model()).graphs(), 1u);  // the last of two sizes
}

// What a hand-off does: the blocks leave the GPU, and others take them in.
TEST_P(GpuModelTest, BlocksGoThroughTheHostAndBack) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  kv::KvArena& arena = runner->arena();
  const auto tokens = RandomTokens(100, runner->vocabulary(), 5);
  TestSequence source = runner->NewSequence(120), target = runner->NewSequence(120);
  runner->Feed(source, std::span(tokens).first(90), 1024, LogitRows::kNone);
  arena.BeforeHostReads(source.blocks);
  for (size_t i = 0; i < source.blocks.size(); ++i) {
    std::memcpy(arena.Layer(target.blocks[i], 0), arena.Layer(source.blocks[i], 0),
                arena.layout().BlockBytes());
  }
  arena.AfterHostWrites(target.blocks);
  target.length = source.length;
  const auto rest = std::span(tokens).subspan(90);
  const auto expected = runner->Feed(source, rest, 1024, LogitRows::kAll);
  EXPECT_TRUE(runner->Feed(target, rest, 3, LogitRows::kAll) == expected);
}

// What cuda_ipc does, with a way that is lost in the middle: every third slice lands in
// the arena.
TEST_P(GpuModelTest, BlocksGoFromPoolToPoolAndLandOnEitherSide) {
  if (TheDevice().plugin != "emulated") GTEST_SKIP() << "looks into the pool";
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  kv::KvArena& arena = runner->arena();
  ASSERT_NE(arena.pool(), nullptr);
  const kv::KvLayout& layout = arena.layout();
  const auto tokens = RandomTokens(100, runner->vocabulary(), 5);
  TestSequence source = runner->NewSequence(120), target = runner->NewSequence(120);
  runner->Feed(source, std::span(tokens).first(90), 1024, LogitRows::kNone);
  EXPECT_EQ(arena.mirror_traffic().from_arena, 0u) << "begun blocks hold nothing to copy";
  std::vector<uint32_t> checksums;
  ASSERT_TRUE(arena.BeforePeerReads(source.blocks, checksums).ok());
  ASSERT_EQ(checksums.size(), source.blocks.size() * layout.layers);
  const auto in_pool = [&](kv::BlockId block, uint32_t layer) {
    return arena.pool()->data + arena.pool()->OffsetOf(arena.LayerSpan(block, layer)).value();
  };
  std::vector<bool> landed;
  for (size_t i = 0; i < source.blocks.size(); ++i) {
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      const std::byte* const from = in_pool(source.blocks[i], layer);
      EXPECT_EQ(Crc32c({from, layout.LayerBytes()}), checksums[landed.size()]);
      landed.push_back(landed.size() % 3 != 0);
      std::byte* const to =
          landed.back() ? in_pool(target.blocks[i], layer) : arena.Layer(target.blocks[i], layer);
      std::memcpy(to, from, layout.LayerBytes());
    }
  }
  const uint64_t before = arena.mirror_traffic().from_arena;
  arena.AfterLanding(target.blocks, landed);
  target.length = source.length;
  const auto rest = std::span(tokens).subspan(90);
  const auto expected = runner->Feed(source, rest, 1024, LogitRows::kAll);
  EXPECT_TRUE(runner->Feed(target, rest, 3, LogitRows::kAll) == expected);
  EXPECT_EQ(arena.mirror_traffic().to_arena, 0u);
  EXPECT_EQ(arena.mirror_traffic().from_arena - before,
            (landed.size() + 2) / 3 * layout.LayerBytes());
}

TEST_P(GpuModelTest, CopiedBlockIsReadInsteadOfItsSource) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  kv::KvArena& arena = runner->arena();
  const auto tokens = RandomTokens(60, runner->vocabulary(), 6);
  TestSequence source = runner->NewSequence(60), target = runner->NewSequence(60);
  runner->Feed(source, std::span(tokens).first(50), 1024, LogitRows::kNone);
  for (size_t i = 0; i < source.blocks.size(); ++i) {
    arena.CopyBlock(source.blocks[i], target.blocks[i]);
  }
  // The second block once more, as the host has it.
  arena.BeforeHostReads({&source.blocks[1], 1});
  arena.AfterHostWrites({&source.blocks[1], 1});
  arena.CopyBlock(source.blocks[1], target.blocks[1]);
  target.length = 50;
  const auto rest = std::span(tokens).subspan(50);
  const auto copied = runner->Feed(target, rest, 1024, LogitRows::kAll);
  EXPECT_TRUE(runner->Feed(source, rest, 1024, LogitRows::kAll) == copied);
}

// Put aside, overwritten on the GPU, and brought back: by the swap area all
// blocks, by the block file one of them.
TEST_P(GpuModelTest, BlocksComeBackFromSwapAndFile) {
  const auto runner = Runner("embedded", Fast(GetParam()));
  ASSERT_TRUE(runner->ok());
  const kv::KvArena& arena = runner->arena();
  const auto tokens = RandomTokens(110, runner->vocabulary(), 9);
  const auto head = std::span(tokens).first(100), rest = std::span(tokens).subspan(100);
  TestSequence kept = runner->NewSequence(110), moved = runner->NewSequence(110);
  runner->Feed(kept, head, 1024, LogitRows::kNone);
  const auto expected = runner->Feed(kept, rest, 1024, LogitRows::kAll);
  auto swap = kv::SwapArea::Create(arena.layout(), 8 * arena.layout().BlockBytes());
  auto file = kv::BlockFile::Open(
      arena.layout(),
      {.path = ::testing::TempDir() + "/baton-gpu-blocks-" + std::to_string(getpid()),
       .bytes = 16 * arena.layout().BlockBytes() + (1 << 16),
       .most_tokens = 512});
  ASSERT_TRUE(swap.ok() && file.ok()) << file.status();
  runner->Feed(moved, head, 1024, LogitRows::kNone);
  (*file)->Put({1, 2}, head.first(kv::kBlockTokens), arena, moved.blocks[0]);
  const auto saved = (*swap)->Save(arena, moved.blocks);
  const auto overwrite = [&] {
    TestSequence other{moved.blocks, 0};
    runner->Feed(other, RandomTokens(100, runner->vocabulary(), 10), 1024, LogitRows::kNone);
  };
  overwrite();
  (*swap)->Restore(arena, saved, moved.blocks);
  EXPECT_TRUE(runner->Feed(moved, rest, 1024, LogitRows::kAll) == expected);
  overwrite();
  (*swap)->Restore(arena, std::span(saved).subspan(1), std::span(moved.blocks).subspan(1));
  ASSERT_TRUE((*file)->Load({1, 2}, head.first(kv::kBlockTokens), arena, moved.blocks[0]));
  moved.length = 100;
  EXPECT_TRUE(runner->Feed(moved, rest, 1024, LogitRows::kAll) == expected);
}

// As on sm_90, at worst: a kernel begins when nothing of what the one before it
// writes is there (kernels/cuda/simt/overlap.h).
TEST_P(GpuModelTest, BitsAreTheSameWhenKernelsBeginEarly) {
  if (baton::testing::TestDevice() != "emulated") GTEST_SKIP() << "is the emulator's mode";
  const auto logits = [&] {
    const auto runner = Runner("embedded", Fast(GetParam()));
    const auto tokens = RandomTokens(50, runner->vocabulary(), 12);
    TestSequence sequence = runner->NewSequence(50);
    auto all = runner->Feed(sequence, std::span(tokens).first(47), 40, LogitRows::kAll);
    const auto decoded = runner->Feed(sequence, std::span(tokens).subspan(47), 1, LogitRows::kAll);
    all.insert(all.end(), decoded.begin(), decoded.end());
    return all;
  };
  const auto expected = logits();
  const EnvironmentSetting overlap("BATON_EMULATED_OVERLAP", "1");
  EXPECT_TRUE(logits() == expected);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, GpuModelTest,
                         ::testing::Values(kv::KvType::kBf16, kv::KvType::kInt8),
                         [](const auto& test) { return std::string(KvTypeName(test.param)); });

void ExpectNearExact(const std::string& path, const LoadOptions& options, double most) {
  const auto runner = Runner(path, options);
  LoadOptions cpu = Options("auto", Precision::kExact, 1);
  cpu.weights = options.weights;
  ModelRunner exact(path, cpu, kBlocks);
  ASSERT_TRUE(runner->ok() && exact.ok());
  const auto tokens = RandomTokens(90, runner->vocabulary(), 8);
  TestSequence on_gpu = runner->NewSequence(90), on_cpu = exact.NewSequence(90);
  const auto logits = runner->Feed(on_gpu, tokens, 40, LogitRows::kAll);
  const auto expected = exact.Feed(on_cpu, tokens, 40, LogitRows::kAll);
  double size = 0, error = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    size += static_cast<double>(expected[i]) * expected[i];
    error += std::pow(static_cast<double>(logits[i]) - expected[i], 2);
  }
  std::printf("relative error of the logits: %.5f\n", std::sqrt(error / size));
  EXPECT_LT(std::sqrt(error / size), most);
}

TEST(GpuLlama, EveryWeightTypeIsNearExactArithmetic) {
  const checkpoint::TempFolder folder;
  const std::string path = folder.path() + "/llama.gguf";
  const std::pair<uint32_t, uint32_t> types[] = {{3, 8}, {0, 0}, {8, 8}, {2, 2}, {3, 3}, {2, 0}};
  for (const auto& type : types) {
    if (BATON_SANITIZED && type != types[0]) continue;
    checkpoint::WriteRandomLlama(path, type.first, type.second);
    SCOPED_TRACE("GGUF types " + std::to_string(type.first) + " and " +
                 std::to_string(type.second));
    ExpectNearExact(path, Fast(), 0.02);
  }
}

TEST(GpuLlama, WeightsAreQuantizedOnRequest) {
  const checkpoint::TempFolder folder;
  const std::string path = folder.path() + "/llama.gguf";
  checkpoint::WriteRandomLlama(path, 0, 0);
  for (const WeightChoice choice : {WeightChoice::kInt8, WeightChoice::kInt4}) {
    LoadOptions options = Fast();
    options.weights = choice;
    ExpectNearExact(path, options, 0.02);
  }
}

TEST(GpuDevice, NamesAreParsed) {
  EXPECT_TRUE(ParseDevice("cpu")->cpu);
  EXPECT_EQ(ParseDevice("cuda")->index, 0);
  EXPECT_EQ(ParseDevice("cuda:3")->index, 3);
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cudax", "CPU"}) {
    const auto status = ParseDevice(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("cpu, cuda or cuda:N"), std::string::npos) << status;
  }
}

TEST(GpuDevice, OneThatIsNotThereIsNamedWithTheWayOut) {
  for (const DeviceName& name :
       {DeviceName{false, "nothing", 0}, DeviceName{false, "emulated", 1}}) {
    const auto status = Device::Open(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("--device cpu"), std::string::npos) << status;
  }
}

TEST(GpuLoad, WhatTheGpuDoesNotTakeIsRefusedByName) {
  LoadOptions exact = Options("auto", Precision::kExact, 1);
  EXPECT_NE(LoadOn(TheDevice(), "embedded", exact).status().message().find("precision exact"),
            std::string::npos);
  EXPECT_NE(LoadOn(TheDevice(), "embedded", Fast(kv::KvType::kF32)).status().message().find("f32"),
            std::string::npos);
}

TEST(GpuLoad, StepsWithoutAnArenaAreRefused) {
  auto model = LoadOn(TheDevice(), "embedded", Fast());
  ASSERT_TRUE(model.ok()) << model.status();
  auto arena = kv::KvArena::Create((*model)->kv_layout(), 4);
  ASSERT_TRUE(arena.ok());
  const std::vector<TokenId> tokens = {5};
  const std::vector<kv::BlockId> blocks = {kv::BlockId{0}};
  const Slice slice{tokens, 0, blocks};
  EXPECT_EQ((*model)->Forward({&slice, 1}, *arena, {}, nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE((*model)->Attach(*arena).ok());
  EXPECT_TRUE((*model)->Forward({&slice, 1}, *arena, {}, nullptr).ok());
}

TEST(GpuLoad, PoolThatDoesNotFitIsRefusedWithTheArithmetic) {
  if (baton::testing::TestDevice() != "emulated") GTEST_SKIP() << "knows the emulator's memory";
  auto model = LoadOn(TheDevice(), "embedded", Fast());
  ASSERT_TRUE(model.ok());
  // Blocks beyond the emulated 4 GiB; the host's are mapped, not touched.
  const size_t block = (*model)->kv_layout().BlockBytes();
  auto arena = kv::KvArena::Create((*model)->kv_layout(),
                                   static_cast<uint32_t>((uint64_t{5} << 30) / block));
  if (!arena.ok()) GTEST_SKIP() << "this machine has no 5 GiB: " << arena.status();
  const absl::Status status = (*model)->Attach(*arena);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("MiB of GPU memory"), std::string::npos) << status;
}

}  // namespace
}  // namespace baton::model::gpu
