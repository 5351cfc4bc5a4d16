// SPDX-License-Identifier: Apache-2.0
#include "tests/common/engine/reference_answers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/sampling/sampler.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using sampling::BeamSearch;

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// One answer on its way through the phases.
class Writer final {
 public:
  Writer(const FakeOptions& fake, const SequenceSpec& spec, uint32_t choice)
      : fake_(fake), spec_(spec), choice_(choice) {}

  ReferenceAnswer Write(const std::vector<PhaseSpec>& phases) {
    for (size_t i = 0; answer_.finish == FinishReason::kNone; ++i) {
      const bool last = i + 1 == phases.size();
      if (phases[i].beam) {
        Search(phases[i], last);
      } else {
        Sample(phases[i], last);
      }
    }
    return answer_;
  }

  // The best hypotheses of a search over the whole answer.
  std::vector<ReferenceAnswer> Hypotheses(const PhaseSpec& phase) {
    std::vector<ReferenceAnswer> answers;
    for (const BeamSearch::Hypothesis& found : Run(phase)) {
      if (answers.size() == spec_.choices) break;
      ReferenceAnswer& answer = answers.emplace_back();
      answer.tokens = found.beam.tokens;
      answer.score = found.score;
      answer.finish = Contains(spec_.stop_tokens, answer.tokens.back()) ? FinishReason::kStop
                                                                        : FinishReason::kLength;
    }
    return answers;
  }

 private:
  std::vector<TokenId> With(const std::vector<TokenId>& more) const {
    std::vector<TokenId> tokens = spec_.prompt;
    tokens.insert(tokens.end(), answer_.tokens.begin(), answer_.tokens.end());
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }

  uint32_t Usable() const {
    return fake_.usable_vocabulary == 0 ? fake_.vocabulary_size : fake_.usable_vocabulary;
  }

  sampling::Position PositionOf(const std::vector<TokenId>& tokens) const {
    return {.tokens = tokens,
            .output_index = static_cast<uint32_t>(tokens.size() - spec_.prompt.size()),
            .choice = choice_,
            .end_tokens = spec_.stop_tokens};
  }

  void FinishWhereItEnds(bool last, bool phase_over) {
    if (Contains(spec_.stop_tokens, answer_.tokens.back())) {
      answer_.finish = FinishReason::kStop;
    } else if (answer_.tokens.size() >= spec_.max_tokens || (last && phase_over)) {
      answer_.finish = FinishReason::kLength;
    }
  }

  void Sample(const PhaseSpec& phase, bool last) {
    for (uint32_t count = 1; answer_.finish == FinishReason::kNone; ++count) {
      const std::vector<TokenId> tokens = With({});
      const auto sample = sampling::SampleToken(model::FakeLogits(fake_, tokens, spec_.window),
                                                Usable(), PositionOf(tokens), phase.sampling);
      answer_.tokens.push_back(sample->token);
      const bool over = phase.max_tokens > 0 && count == phase.max_tokens;
      FinishWhereItEnds(last, over);
      if (over || Contains(phase.until_tokens, sample->token)) return;
    }
  }

  void Search(const PhaseSpec& phase, bool last) {
    const BeamSearch::Hypothesis best = Run(phase).front();
    answer_.tokens.insert(answer_.tokens.end(), best.beam.tokens.begin(), best.beam.tokens.end());
    FinishWhereItEnds(last, /*phase_over=*/true);
    if (answer_.finish != FinishReason::kNone) answer_.score = best.score;
  }

  std::vector<BeamSearch::Hypothesis> Run(const PhaseSpec& phase) const {
    std::vector<TokenId> ends = spec_.stop_tokens;
    ends.insert(ends.end(), phase.until_tokens.begin(), phase.until_tokens.end());
    const auto left = static_cast<uint32_t>(spec_.max_tokens - answer_.tokens.size());
    BeamSearch search(*phase.beam, ends,
                      phase.max_tokens > 0 ? std::min(left, phase.max_tokens) : left);
    while (!search.done()) {
      std::vector<sampling::BeamRow> rows;
      for (const BeamSearch::Beam& beam : search.live()) {
        const std::vector<TokenId> tokens = With(beam.tokens);
        rows.push_back(*sampling::ExpandBeam(model::FakeLogits(fake_, tokens, spec_.window),
                                             Usable(), PositionOf(tokens), phase.sampling,
                                             search.candidates_per_row()));
      }
      search.Advance(rows);
    }
    return search.finished();
  }

  const FakeOptions& fake_;
  const SequenceSpec& spec_;
  const uint32_t choice_;
  ReferenceAnswer answer_;
};

}  // namespace

std::vector<ReferenceAnswer> ReferenceAnswers(const FakeOptions& fake, const SequenceSpec& spec) {
  std::vector<PhaseSpec> phases = spec.phases;
  if (phases.empty()) phases.push_back({.sampling = spec.sampling, .beam = spec.beam});
  if (spec.beam) return Writer(fake, spec, 0).Hypotheses(phases.front());
  std::vector<ReferenceAnswer> answers;
  for (uint32_t choice = 0; choice < spec.choices; ++choice) {
    answers.push_back(Writer(fake, spec, choice).Write(phases));
  }
  return answers;
}

std::vector<ReferenceAnswer> AnswersOf(const Heard& heard) {
  std::vector<ReferenceAnswer> answers;
  for (const auto& [index, choice] : heard.choices) {
    if (index >= answers.size()) answers.resize(index + 1);
    answers[index] = {choice.tokens, choice.finish, choice.score};
  }
  return answers;
}

std::vector<ReferenceAnswer> AnswersOf(Pair& pair, SequenceRef ref) {
  std::vector<ReferenceAnswer> answers = AnswersOf(pair.prefill_heard.Of(ref));
  const std::vector<ReferenceAnswer> rest = AnswersOf(pair.decode_heard.Of(ref));
  answers.resize(std::max(answers.size(), rest.size()));
  for (size_t i = 0; i < rest.size(); ++i) {
    answers[i].tokens.insert(answers[i].tokens.end(), rest[i].tokens.begin(), rest[i].tokens.end());
    if (rest[i].tokens.empty()) continue;
    answers[i].finish = rest[i].finish;
    answers[i].score = rest[i].score;
  }
  return answers;
}

void ExpectEqual(const std::vector<ReferenceAnswer>& got,
                 const std::vector<ReferenceAnswer>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << "choice " << i;
    EXPECT_EQ(got[i].finish, expected[i].finish) << "choice " << i;
    EXPECT_EQ(got[i].score, expected[i].score) << "choice " << i;
  }
}

}  // namespace baton::engine
