// SPDX-License-Identifier: Apache-2.0
// A prompt computed by one model and continued by another, as after a hand-off.
#pragma once

#include <span>
#include <vector>

#include "tests/common/model/model_runner.h"

namespace baton::model {

// Logits of `steps`, forced one by one behind `prompt`; the prompt's blocks come
// from `prefill` and are converted for `decode`. Both runners are reset.
std::vector<float> Continue(ModelRunner& prefill, ModelRunner& decode,
                            std::span<const TokenId> prompt, std::span<const TokenId> steps);

// Mean over rows of `width` of the divergence of q's distribution from p's.
double MeanKl(std::span<const float> p_logits, std::span<const float> q_logits, uint32_t width);

}  // namespace baton::model
