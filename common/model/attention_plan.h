// SPDX-License-Identifier: Apache-2.0
// Cuts the attention of a step into items for the threads.
#pragma once

#include <cstdint>

#include "common/checkpoint/checkpoint.h"
#include "common/model/step.h"

namespace baton::model {

// Fills in the step's items and merges from its rows.
//
// KV that consecutive slices of one token each have in common, such as the
// choices of a request, is read once for all of them (Juravsky et al., 2024,
// "Hydragen"). When items are few they are split by segments. Which way a row's
// segments are computed changes none of its bits.
void PlanAttention(Step& step, const checkpoint::ModelConfig& config, uint32_t threads);

}  // namespace baton::model
