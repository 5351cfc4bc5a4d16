// SPDX-License-Identifier: Apache-2.0
// How the tokens of a step are chosen, as the GPU kernel takes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model.h"
#include "kernels/cuda/api/kernels.h"

namespace baton::model::gpu {

// Of the slices with a choice, in their order.
struct SamplePlan {
  std::vector<::baton::gpu::SampleRow> rows;  // [chosen], then those of padding, which choose none
  std::vector<bool> constrained;              // [chosen]
  // All lists that rows refer to in one run of words, histories and biases first: it stands
  // where a captured graph expects it, however long the lists are.
  std::vector<uint32_t> lists;

  size_t chosen() const { return constrained.size(); }
  size_t bytes() const;  // of both arrays on the device
};

// `padded`: rows of the kernel, as many as choices at least, when there is one.
// Takes time by the lengths of lists: of penalties each distinct token of the sequence.
SamplePlan PlanSampling(std::span<const Slice> slices, uint32_t usable_vocabulary, size_t padded);

}  // namespace baton::model::gpu
