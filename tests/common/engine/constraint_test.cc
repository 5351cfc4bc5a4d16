// SPDX-License-Identifier: Apache-2.0
// Answers that have to match: the same alone, split, in company and put aside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/grammar/source.h"
#include "tests/common/engine/harness.h"
#include "tests/common/engine/reference_answers.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using ::testing::HasSubstr;

constexpr TokenId kEnd = 2;  // FakeOptions' end token
constexpr TokenId kFirstByte = 3;

// Control tokens, every byte, and pieces over and over, so that all of the fake
// model's vocabulary has text.
std::shared_ptr<const grammar::TokenTrie> Vocabulary(const FakeOptions& fake, bool bytes = true) {
  static const char* const kPieces[] = {"\"",       "\":", "\": ", ",\"", "\"}",  "{\"",
                                        "name",     "a",   " the", "12",  "true", "中",
                                        "\xE4\xB8", "]",   "[",    "0",   "e"};
  std::vector<grammar::TokenTrie::Token> tokens(kFirstByte);
  for (int byte = 0; bytes && byte < 256; ++byte) {
    tokens.push_back({std::string(1, static_cast<char>(byte)), true});
  }
  for (size_t i = 0; tokens.size() < fake.vocabulary_size; ++i)
    tokens.push_back({kPieces[i % 17], false});
  return std::make_shared<const grammar::TokenTrie>(tokens, false);
}

std::shared_ptr<grammar::Matcher> MatcherOf(const grammar::Source& source,
                                            std::shared_ptr<const grammar::TokenTrie> trie) {
  return std::make_shared<grammar::Matcher>(*grammar::Compile(source), std::move(trie));
}

grammar::Source SchemaSource() {
  return {
      grammar::SourceKind::kSchema,
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},)"
      R"("n":{"type":"integer"},"l":{"type":"array","items":{"enum":["a","中",true]},"maxItems":6}},)"
      R"("required":["name","l"]})",
      {}};
}

class Constraints : public ::testing::Test {
 protected:
  SequenceSpec Spec(uint64_t key, uint32_t max_tokens = 60, Role role = Role::kWhole) {
    SequenceSpec spec = MakeSpec(key, {5, 6, 7, static_cast<TokenId>(key % 900)}, max_tokens, role);
    spec.sampling.temperature = 1;
    spec.sampling.seed = key;
    spec.stop_tokens = {kEnd};
    spec.constraint = matcher_;
    return spec;
  }
  std::string TextOf(const std::vector<TokenId>& tokens) const {
    std::string text;
    for (const TokenId token : tokens) text += trie_->bytes(token);
    return text;
  }
  bool Matches(const std::vector<TokenId>& tokens) const {
    const auto program = *grammar::Compile(SchemaSource());
    grammar::Automaton automaton(program.get(), {});
    grammar::StateId state = automaton.start();
    for (const char byte : TextOf(tokens))
      state = automaton.Next(state, static_cast<uint8_t>(byte));
    return automaton.Accepts(state);
  }
  Heard Run(const SequenceSpec& spec, uint32_t blocks = 64) {
    Recorder recorder;
    const auto engine = MakeEngine(fake_, PoolOf(blocks), &recorder);
    engine->Submit(spec);
    EXPECT_TRUE(recorder.WaitForEnd(spec.ref));
    ExpectIdle(*engine);
    return recorder.Of(spec.ref);
  }

  const FakeOptions fake_ = {};
  const std::shared_ptr<const grammar::TokenTrie> trie_ = Vocabulary(fake_);
  std::shared_ptr<grammar::Matcher> matcher_ = MatcherOf(SchemaSource(), trie_);
};

TEST_F(Constraints, AnswersMatchAndEndWithStop) {
  for (uint64_t key = 1; key <= 40; ++key) {
    const Heard heard = Run(Spec(key));
    ASSERT_TRUE(heard.end.status.ok()) << heard.end.status;
    EXPECT_EQ(heard.end.reason, FinishReason::kStop) << TextOf(heard.tokens);
    EXPECT_TRUE(Matches(heard.tokens)) << TextOf(heard.tokens);
  }
}

TEST_F(Constraints, GreedyAnswersAndPenaltiesMatchToo) {
  SequenceSpec spec = Spec(1);
  spec.sampling.temperature = 0;
  spec.sampling.repetition_penalty = 1.5f;
  spec.sampling.frequency_penalty = 0.5f;
  spec.sampling.bad_sequences = {{kFirstByte + 'a'}};
  const Heard heard = Run(spec);
  EXPECT_EQ(heard.end.reason, FinishReason::kStop);
  EXPECT_TRUE(Matches(heard.tokens)) << TextOf(heard.tokens);
}

TEST_F(Constraints, SplitAndInCompanyTheyAreTheSameAsAlone) {
  Pair pair(fake_, PoolOf(64), PoolOf(64));
  Recorder together_heard;
  const auto together = MakeEngine(fake_, PoolOf(256), &together_heard);
  for (uint64_t key = 1; key <= 24; ++key) {
    pair.Submit(Spec(key));
    together->Submit(Spec(key));
  }
  for (uint64_t key = 1; key <= 24; ++key) {
    const SequenceSpec spec = Spec(key);
    matcher_ = MatcherOf(SchemaSource(), trie_);  // one that knows nothing yet
    const Heard alone = Run(Spec(key));
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    ASSERT_TRUE(together_heard.WaitForEnd(spec.ref));
    EXPECT_EQ(pair.Tokens(spec.ref), alone.tokens);
    EXPECT_EQ(together_heard.Of(spec.ref).tokens, alone.tokens);
  }
}

// With and without a swap area: computed again, or copied back.
TEST_F(Constraints, PutAsideTheyGoOnAsBefore) {
  for (const uint64_t swap_bytes : {uint64_t{0}, uint64_t{64} << 20}) {
    Recorder recorder;
    Options options = PoolOf(6);
    options.swap_bytes = swap_bytes;
    const auto engine = MakeEngine(fake_, options, &recorder);
    for (uint64_t key = 1; key <= 8; ++key) engine->Submit(Spec(key, 100));
    for (uint64_t key = 1; key <= 8; ++key) {
      ASSERT_TRUE(recorder.WaitForEnd({1, key}));
      const Heard heard = recorder.Of({1, key});
      EXPECT_TRUE(Matches(heard.tokens)) << TextOf(heard.tokens);
      EXPECT_EQ(heard.tokens, Run(Spec(key, 100)).tokens);
    }
  }
}

TEST_F(Constraints, ACompleteTextNeedsNoEndToken) {
  const std::string byte = "x";
  matcher_ = MatcherOf({grammar::SourceKind::kChoices, "", {byte}}, trie_);
  SequenceSpec spec = Spec(1);
  spec.stop_tokens = {};
  const Heard heard = Run(spec);
  EXPECT_EQ(heard.tokens, std::vector<TokenId>{kFirstByte + 'x'});
  EXPECT_EQ(heard.end.reason, FinishReason::kStop);
  // The prefill worker hands nothing over then.
  Pair pair(fake_, PoolOf(16), PoolOf(16));
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.Tokens(spec.ref), heard.tokens);
}

TEST_F(Constraints, TextsThatCannotGoOnEndWithAStatus) {
  // The pieces alone cannot spell it.
  matcher_ = MatcherOf({grammar::SourceKind::kRegex, "a!", {}}, Vocabulary(fake_, false));
  Heard heard = Run(Spec(1));
  EXPECT_EQ(heard.end.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(heard.end.status.message()), HasSubstr("the constraint allows none"));
  EXPECT_EQ(heard.tokens.size(), 1u);
  // It is complete before min_tokens.
  matcher_ = MatcherOf({grammar::SourceKind::kRegex, "!", {}}, trie_);
  SequenceSpec spec = Spec(1);
  spec.sampling.min_tokens = 3;
  heard = Run(spec);
  EXPECT_EQ(heard.end.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(heard.end.status.message()), HasSubstr("min_tokens"));
}

TEST_F(Constraints, LogprobsAreOfTheModelsOwnDistribution) {
  SequenceSpec spec = Spec(3);
  spec.sampling.logprobs = 5;
  const Heard heard = Run(spec);
  SequenceSpec free = Spec(3, 1);
  free.constraint = nullptr;
  free.sampling.logprobs = 5;
  const Heard unconstrained = Run(free);
  EXPECT_EQ(heard.samples[0].logprobs->top, unconstrained.samples[0].logprobs->top);
}

// Several answers, beams, and parts with strategies of their own.
TEST_F(Constraints, HoldForEveryStrategy) {
  Pair pair(fake_, PoolOf(256), PoolOf(256));
  Recorder heard;
  const auto engine = MakeEngine(fake_, PoolOf(256), &heard);
  for (uint64_t key = 1; key <= 24; ++key) {
    SequenceSpec spec = Spec(key, 70);
    if (key % 4 == 0) spec.choices = 3;
    if (key % 4 == 1 || key % 4 == 2) spec.sampling.temperature = 0;
    if (key % 4 == 1) {
      spec.choices = 2;
      spec.beam = sampling::BeamParams{.width = 4};
    }
    if (key % 4 == 2) {
      spec.phases = {{.beam = sampling::BeamParams{.width = 3}, .max_tokens = 6}, {}};
    }
    if (key % 4 == 3) {
      spec.phases = {{.sampling = spec.sampling, .max_tokens = 5},
                     {.sampling = {.temperature = 0.5f, .seed = key}}};
    }
    pair.Submit(spec);
    engine->Submit(spec);
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    ASSERT_TRUE(heard.Of(spec.ref).end.status.ok()) << heard.Of(spec.ref).end.status;
    const std::vector<ReferenceAnswer> answers = AnswersOf(heard.Of(spec.ref));
    ExpectEqual(AnswersOf(pair, spec.ref), answers);
    EXPECT_EQ(answers.size(), spec.choices);
    for (const ReferenceAnswer& answer : answers) {
      EXPECT_EQ(answer.finish, FinishReason::kStop) << TextOf(answer.tokens);
      EXPECT_TRUE(Matches(answer.tokens)) << TextOf(answer.tokens);
    }
  }
  pair.ExpectIdle();
  ExpectIdle(*engine);
}

TEST_F(Constraints, EnoughTokensAreLeftToEndWith) {
  for (uint64_t key = 1; key <= 30; ++key) {
    const Heard heard = Run(Spec(key, 20 + static_cast<uint32_t>(key) % 7));
    EXPECT_EQ(heard.end.reason, FinishReason::kStop) << TextOf(heard.tokens);
    EXPECT_TRUE(Matches(heard.tokens)) << TextOf(heard.tokens);
  }
}

}  // namespace
}  // namespace baton::engine
