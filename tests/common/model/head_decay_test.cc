// SPDX-License-Identifier: Apache-2.0
#include "common/model/head_decay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/common/model/masked_reference.h"
#include "tests/common/model/model_runner.h"
#include "tests/testing/test_data.h"

namespace baton::model {
namespace {

using ::testing::HasSubstr;

TEST(HeadDecays, RulesAreReadAndTheLastCounts) {
  const auto rules = ParseHeadDecays({"*:*=0.5", "1:0-1=0", "1-2:3=0.9"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  const auto table = DecayTable(*rules, 3, 4);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(*table, (std::vector<float>{0.5, 0.5, 0.5, 0.5, 0, 0, 0.5, 0.9f, 0.5, 0.5, 0.5, 0.9f}));
  EXPECT_TRUE(DecayTable({}, 3, 4)->empty());
  EXPECT_EQ(DecayName({}), "");
  EXPECT_NE(DecayName(*table), DecayName(*DecayTable(std::span(*rules).first(2), 3, 4)));
}

TEST(HeadDecays, RefusalNamesTheTextAndTheLimit) {
  for (const char* text : {"", "1:2", "1=0.5", "a:1=0.5", "1:2-1=0.5", "1:-2=0.5", "1:2=x", "1:2=1",
                           "1:2=-0.1", "1:2=nan", "1:2-3-4=0.5", "1:4294967295=0"}) {
    const auto rules = ParseHeadDecays({"0:0=0.5", text});
    EXPECT_TRUE(absl::IsInvalidArgument(rules.status())) << text;
    EXPECT_THAT(std::string(rules.status().message()), HasSubstr(text));
  }
  const auto layer = ParseHeadDecays({"3:0=0.5"}), head = ParseHeadDecays({"0:1-4=0.5"});
  EXPECT_THAT(std::string(DecayTable(*layer, 3, 4).status().message()),
              HasSubstr("layer 3 is asked for; the model has 3"));
  EXPECT_THAT(std::string(DecayTable(*head, 3, 4).status().message()), HasSubstr("head 4"));
}

LoadOptions Decaying(const std::string& isa, Precision precision, kv::KvType type,
                     const std::vector<std::string>& texts, uint32_t threads = 1) {
  LoadOptions options = Options(isa, precision, threads);
  options.kv_type = type;
  options.context_tokens = 2048;
  options.head_decay = *ParseHeadDecays(texts);
  return options;
}

// Every logit against float64, with weights multiplied token by token. Two rules: a
// decay of heads in one layer, and a reset in another.
TEST(HeadDecay, ExactLogitsAreThoseOfTheReference) {
  const std::string model = testing::SharedData("models/stories260k/hf");
  BATON_NEED_DATA(model);
  const auto checkpoint = checkpoint::OpenCheckpoint(model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ModelRunner runner(model, Decaying("auto", Precision::kExact, kv::KvType::kF32,
                                     {"1:0-3=0.25", "3:2=0", "3:5-6=0"}));
  ASSERT_TRUE(runner.ok());
  MaskedReference reference(**checkpoint, {});
  reference.SetWeight([](size_t layer, size_t head, size_t position, size_t token) {
    const auto age = static_cast<double>(position / 256 - token / 256);
    if (layer == 1 && head <= 3) return std::pow(0.25, age);
    const bool reset = layer == 3 && (head == 2 || head == 5 || head == 6);
    return reset && age > 0 ? 0.0 : 1.0;
  });
  const auto tokens = RandomTokens(840, runner.vocabulary(), 1);
  TestSequence sequence = runner.NewSequence(840);
  double worst = 0;
  for (size_t at = 0; at < tokens.size(); at += 70) {
    const auto logits =
        runner.Feed(sequence, std::span(tokens).subspan(at, 70), 70, LogitRows::kAll);
    for (size_t i = 0; i < 70; ++i) {
      const std::vector<double> expected = reference.Next(tokens[at + i]);
      for (size_t v = 0; v < expected.size(); ++v) {
        worst = std::max(worst, std::abs(logits[i * expected.size() + v] - expected[v]));
      }
    }
  }
  EXPECT_LT(worst, 2e-3);
}

TEST(HeadDecay, BitsAreTheSameInEveryChunkAndThreadCountAndDifferFromPlainOnes) {
  for (const kv::KvType type : {kv::KvType::kBf16, kv::KvType::kInt8}) {
    std::vector<float> expected;
    for (const uint32_t threads : {1u, 2u}) {
      ModelRunner runner("embedded",
                         Decaying("auto", Precision::kFast, type, {"*:*=0.5", "0:0=0"}, threads));
      ASSERT_TRUE(runner.ok());
      const auto tokens = RandomTokens(600, runner.vocabulary(), 2);
      for (const uint32_t chunk : {600u, 100u, 33u}) {
        TestSequence sequence = runner.NewSequence(600);
        const auto logits = runner.Feed(sequence, tokens, chunk, LogitRows::kAll);
        runner.Reset();
        if (expected.empty()) expected = logits;
        EXPECT_EQ(logits, expected) << "chunk " << chunk << ", threads " << threads;
      }
    }
    ModelRunner plain("embedded", Decaying("auto", Precision::kFast, type, {}));
    const auto tokens = RandomTokens(600, plain.vocabulary(), 2);
    TestSequence sequence = plain.NewSequence(600);
    const auto logits = plain.Feed(sequence, tokens, 600, LogitRows::kAll);
    const auto first = static_cast<std::ptrdiff_t>(256 * size_t{plain.vocabulary()});
    EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + first, expected.begin()))
        << "nothing is old in the first segment";
    EXPECT_NE(logits, expected);
  }
}

// Such KV is nobody else's.
TEST(HeadDecay, IsPartOfTheNumericsOfAWorker) {
  const auto checkpoint = checkpoint::OpenCheckpoint("embedded");
  ASSERT_TRUE(checkpoint.ok());
  const auto layout = [&](const std::vector<std::string>& texts) {
    return *PlanKvLayout(**checkpoint,
                         Decaying("auto", Precision::kFast, kv::KvType::kBf16, texts));
  };
  EXPECT_NE(layout({}).numerics_id, layout({"0:0=0.5"}).numerics_id);
  EXPECT_NE(layout({}).compute_id, layout({"0:0=0.5"}).compute_id);
  EXPECT_NE(layout({"0:0=0.4"}).numerics_id, layout({"0:0=0.5"}).numerics_id);
  const auto refused = PlanKvLayout(
      **checkpoint, Decaying("auto", Precision::kFast, kv::KvType::kBf16, {"99:0=0.5"}));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("layer 99"));
}

}  // namespace
}  // namespace baton::model
