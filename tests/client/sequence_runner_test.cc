// SPDX-License-Identifier: Apache-2.0
// Over the fake model, whose logits depend on every KV byte it should read.
#include "client/cli/sequence_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "client/cli/divergence.h"
#include "common/model/fake/fake_model.h"

namespace baton::cli {
namespace {

model::FakeOptions SmallSteps() {
  model::FakeOptions options;
  options.max_step_tokens = 24;  // chunks that end inside blocks of 32
  options.context_tokens = 1024;
  return options;
}

std::vector<TokenId> Prompt(size_t count) {
  std::vector<TokenId> prompt(count);
  std::iota(prompt.begin(), prompt.end(), 100);
  return prompt;
}

TEST(SequenceRunner, ChunkedPrefillPredictsWhatTheReferenceDoes) {
  const auto model = *model::MakeFakeModel(SmallSteps());
  auto runner = SequenceRunner::Create(model.get(), 2, 128);
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (size_t count : {1u, 24u, 25u, 100u}) {
    std::vector<float> row(runner->vocabulary());
    ASSERT_TRUE(runner->Prefill(1, Prompt(count), row).ok());
    EXPECT_EQ(ArgMax(row), model::FakeReference(SmallSteps(), Prompt(count), 1)[0]) << count;
  }
}

TEST(SequenceRunner, ForEachRowGivesEveryPositionOnceInOrder) {
  const auto model = *model::MakeFakeModel(SmallSteps());
  auto runner = SequenceRunner::Create(model.get(), 1, 128);
  ASSERT_TRUE(runner.ok());
  const std::vector<TokenId> tokens = Prompt(70);
  uint32_t next = 0;
  ASSERT_TRUE(runner
                  ->ForEachRow(tokens,
                               [&](uint32_t position, std::span<const float> logits) {
                                 EXPECT_EQ(position, next++);
                                 const auto prefix = std::span(tokens).first(position + 1);
                                 EXPECT_EQ(ArgMax(logits),
                                           model::FakeReference(SmallSteps(), prefix, 1)[0]);
                               })
                  .ok());
  EXPECT_EQ(next, 70u);
}

TEST(SequenceRunner, StepsOfSeveralSequencesDoNotMix) {
  const auto model = *model::MakeFakeModel(SmallSteps());
  auto runner = SequenceRunner::Create(model.get(), 2, 64);
  ASSERT_TRUE(runner.ok());
  const std::vector<TokenId> first = {5, 6, 7}, second = {8, 9, 10};
  ASSERT_TRUE(runner->Prefill(0, std::span(first).first(2), {}).ok());
  ASSERT_TRUE(runner->Prefill(1, std::span(second).first(2), {}).ok());
  std::vector<float> logits(2 * runner->vocabulary());
  ASSERT_TRUE(runner->Step(std::vector<TokenId>{7, 10}, 2, logits).ok());
  const std::span<const float> rows(logits);
  EXPECT_EQ(ArgMax(rows.first(runner->vocabulary())),
            model::FakeReference(SmallSteps(), first, 1)[0]);
  EXPECT_EQ(ArgMax(rows.last(runner->vocabulary())),
            model::FakeReference(SmallSteps(), second, 1)[0]);
}

TEST(SequenceRunner, RefusesWhatDoesNotFit) {
  const auto model = *model::MakeFakeModel(SmallSteps());
  EXPECT_EQ(SequenceRunner::Create(model.get(), 1, 1025).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto runner = SequenceRunner::Create(model.get(), 1, 32);
  ASSERT_TRUE(runner.ok());
  EXPECT_FALSE(runner->Prefill(0, Prompt(33), {}).ok());
  EXPECT_FALSE(runner->Prefill(0, std::vector<TokenId>{1000}, {}).ok());
}

}  // namespace
}  // namespace baton::cli
