// SPDX-License-Identifier: Apache-2.0
#include "common/model/load.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/common/model/model_runner.h"

namespace baton::model {
namespace {

class LoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = checkpoint::OpenCheckpoint("embedded");
    ASSERT_TRUE(opened.ok()) << opened.status();
    checkpoint_ = *std::move(opened);
  }
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
};

TEST_F(LoadTest, DescribesTheModel) {
  const auto model = LoadModel(*checkpoint_, Options("generic", Precision::kFast, 1));
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.architecture, "chatglm");
  EXPECT_EQ(info.vocabulary_size, 672u);
  EXPECT_EQ(info.context_tokens, 512u);
  EXPECT_EQ(info.parameters, 425088u);
  EXPECT_EQ(info.end_tokens, (std::vector<TokenId>{2}));
  EXPECT_EQ(info.compute, "generic fast");
  EXPECT_EQ(info.threads, 1u);
  EXPECT_GE(info.weight_bytes, 425088u);
}

TEST_F(LoadTest, PlannedKvLayoutIsThatOfTheModel) {
  for (const std::string& isa : AvailableIsas()) {
    for (Precision precision : {Precision::kExact, Precision::kFast}) {
      const LoadOptions options = Options(isa, precision, 1);
      const auto planned = PlanKvLayout(*checkpoint_, options);
      const auto model = LoadModel(*checkpoint_, options);
      ASSERT_TRUE(planned.ok() && model.ok());
      EXPECT_TRUE(kv::CheckCompatible(*planned, (*model)->kv_layout()).ok());
      EXPECT_EQ(planned->type,
                precision == Precision::kExact ? kv::KvType::kF32 : kv::KvType::kBf16);
    }
  }
}

TEST_F(LoadTest, NumericsIdTellsBackendsPrecisionsAndKvTypesApart) {
  std::set<std::string> ids, compute_ids;
  size_t count = 0;
  for (const std::string& isa : AvailableIsas()) {
    for (Precision precision : {Precision::kExact, Precision::kFast}) {
      for (kv::KvType type : {kv::KvType::kF32, kv::KvType::kBf16, kv::KvType::kInt8}) {
        LoadOptions options = Options(isa, precision, 1);
        options.kv_type = type;
        const auto layout = PlanKvLayout(*checkpoint_, options);
        ASSERT_TRUE(layout.ok());
        ids.insert(layout->numerics_id);
        compute_ids.insert(layout->compute_id);
        ++count;
      }
    }
  }
  EXPECT_EQ(ids.size(), count);
  EXPECT_EQ(compute_ids.size(), count / 3) << "the KV type has no part in it";
}

TEST_F(LoadTest, RefusesAnUnknownIsaAndNamesThePossibleOnes) {
  const auto model = LoadModel(*checkpoint_, Options("sse9", Precision::kFast));
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(model.status().message().find("auto"), absl::string_view::npos);
  EXPECT_NE(model.status().message().find("generic"), absl::string_view::npos);
}

TEST_F(LoadTest, RefusesWhatDoesNotFitWithTheArithmetic) {
  LoadOptions options = Options("generic", Precision::kExact);
  options.max_step_tokens = 1'000'000'000;  // terabytes of activations
  const auto model = LoadModel(*checkpoint_, options);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(model.status().message().find("MiB are available"), absl::string_view::npos)
      << model.status();
}

TEST_F(LoadTest, ModelOutlivesItsCheckpoint) {
  const auto model = LoadModel(*checkpoint_, Options("generic", Precision::kExact, 1));
  ASSERT_TRUE(model.ok());
  checkpoint_.reset();
  const auto arena = kv::KvArena::Create((*model)->kv_layout(), 1);
  ASSERT_TRUE(arena.ok());
  const std::vector<TokenId> tokens = {641, 643};
  const std::vector<kv::BlockId> blocks = {kv::BlockId{0}};
  const Slice slice{tokens, 0, blocks, LogitRows::kLast};
  std::vector<float> logits(672);
  EXPECT_TRUE((*model)->Forward({&slice, 1}, *arena, logits, nullptr).ok());
}

TEST_F(LoadTest, CallsLayerDoneOnceForEachLayerInOrder) {
  for (uint32_t count : {1u, 60u}) {
    const auto model = LoadModel(*checkpoint_, Options("generic", Precision::kExact));
    ASSERT_TRUE(model.ok());
    const auto arena = kv::KvArena::Create((*model)->kv_layout(), 2);
    const auto tokens = RandomTokens(count, 600, 1);
    const std::vector<kv::BlockId> blocks = {kv::BlockId{1}, kv::BlockId{0}};
    const Slice slice{tokens, 0, blocks, LogitRows::kNone};
    std::vector<uint32_t> layers;
    ASSERT_TRUE(
        (*model)
            ->Forward({&slice, 1}, *arena, {}, [&](uint32_t layer) { layers.push_back(layer); })
            .ok());
    EXPECT_EQ(layers, (std::vector<uint32_t>{0, 1, 2}));
  }
}

TEST_F(LoadTest, ForwardRefusesLogitsOfTheWrongSize) {
  const auto model = LoadModel(*checkpoint_, Options("generic", Precision::kExact, 1));
  ASSERT_TRUE(model.ok());
  const auto arena = kv::KvArena::Create((*model)->kv_layout(), 1);
  const std::vector<TokenId> tokens = {1};
  const std::vector<kv::BlockId> blocks = {kv::BlockId{0}};
  const Slice slice{tokens, 0, blocks, LogitRows::kLast};
  std::vector<float> logits(671);
  EXPECT_EQ((*model)->Forward({&slice, 1}, *arena, logits, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::model
