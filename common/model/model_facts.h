// SPDX-License-Identifier: Apache-2.0
// What is known of a model whatever computes it.
#pragma once

#include "common/checkpoint/checkpoint.h"
#include "common/model/model.h"

namespace baton::model {

// All but weight_bytes, compute, threads and windows. `config` may have another
// context than the checkpoint's.
ModelInfo FactsOf(const checkpoint::Checkpoint& checkpoint, const checkpoint::ModelWeights& weights,
                  const checkpoint::ModelConfig& config);

}  // namespace baton::model
