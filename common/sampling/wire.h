// SPDX-License-Identifier: Apache-2.0
// Sampling parameters as messages carry them.
#pragma once

#include "baton/v1/types.pb.h"
#include "common/sampling/beam_search.h"
#include "common/sampling/params.h"

namespace baton::sampling {

// What is not set takes its default; the preset and bad_words are the router's
// to resolve. Nothing is checked: see FindBadParam.
Params ParamsFromWire(const v1::SamplingParams& wire);
BeamParams BeamParamsFromWire(const v1::BeamParams& wire);

}  // namespace baton::sampling
