// SPDX-License-Identifier: Apache-2.0
// Looks ahead for grammars that would be too slow to follow.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/grammar/program.h"

namespace baton::grammar {

// Follows the text with the most alternatives for a while. RESOURCE_EXHAUSTED
// when they become more than an Automaton allows. `budget` is what may be spent,
// in alternatives looked at, and is lowered by what was; with none left
// everything passes, and is stopped when it happens.
absl::Status Probe(const Program& program, int64_t* budget);

inline constexpr int64_t kProbeBudget = 300000;

}  // namespace baton::grammar
