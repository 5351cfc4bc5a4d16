// SPDX-License-Identifier: Apache-2.0
// What the fake model answers to a sequence: rows computed without blocks,
// tokens chosen by common/sampling alone.
#pragma once

#include <optional>
#include <vector>

#include "common/engine/engine.h"
#include "common/model/fake/fake_model.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {

struct ReferenceAnswer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  std::optional<double> score;
};

// One per choice.
std::vector<ReferenceAnswer> ReferenceAnswers(const model::FakeOptions& fake,
                                              const SequenceSpec& spec);

// Of a request that went through `heard`; with both ends of a pair merged by choice.
std::vector<ReferenceAnswer> AnswersOf(const Heard& heard);
std::vector<ReferenceAnswer> AnswersOf(Pair& pair, SequenceRef ref);

// Fails the test where they differ.
void ExpectEqual(const std::vector<ReferenceAnswer>& got,
                 const std::vector<ReferenceAnswer>& expected);

}  // namespace baton::engine
