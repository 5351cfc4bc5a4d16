// SPDX-License-Identifier: Apache-2.0
// Speed of a backend's kernels on the shapes of a model, apart from the model.
#pragma once

#include <cstdint>

#include "client/cli/bench/model_work.h"
#include "client/cli/bench/rate.h"
#include "kernels/api/attention.h"
#include "kernels/api/backend.h"

namespace baton::cli {

struct KernelSpeed {
  Rate operations;                 // per second, of all threads
  double bytes_per_operation = 0;  // of weights or KV that come from memory; 0: from caches
};

// A product of `rows` rows, as a step does it: with kPromptRows rows and more
// each thread has rows of its own and runs all panels over them; with fewer the
// threads share the panels, which come from memory: as many copies of the
// matrix take turns as the caches do not hold. Weights are the model's.
// Activations are random; `outliers` of their groups of 32 have one value ten
// times as large as the others.
inline constexpr uint32_t kPromptRows = 64;
KernelSpeed MeasureMatrix(const MatrixWork& matrix, const model::ComputePlan& plan, uint32_t rows,
                          double outliers, uint32_t threads, uint64_t beyond_caches,
                          double seconds);

// Attention of `rows` query rows of one KV head over `context` tokens, with the
// merge of its segments. `from_memory`: over the KV of ever other sequences, as
// in decoding; else over that of one sequence per thread, as in a prompt.
KernelSpeed MeasureAttention(const model::ComputePlan& plan, uint32_t rows, uint32_t context,
                             bool from_memory, uint32_t threads, uint64_t beyond_caches,
                             double seconds);

}  // namespace baton::cli
