// SPDX-License-Identifier: Apache-2.0
// Which kernels a model runs on, and the KV layout that follows from them.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/kv/layout.h"
#include "common/model/load.h"
#include "kernels/api/backend.h"

namespace baton::model {

struct ComputePlan {
  const kernels::Backend* backend;
  kernels::Precision precision;
  const kernels::AttentionFormat* attention;
  std::vector<float> decay;  // DecayTable()
  kv::KvLayout layout;
};

// INVALID_ARGUMENT for an isa that does not exist or that this CPU lacks, and for
// options.head_decay that names what is not there.
absl::StatusOr<ComputePlan> PlanCompute(const checkpoint::Checkpoint& checkpoint,
                                        const checkpoint::ModelWeights& weights,
                                        const LoadOptions& options);

}  // namespace baton::model
