// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/attention.h"

namespace baton::kernels::ref {

// float64 scores, weights and sums over every element type.
const AttentionFormat& Attention(KvElement element);
MergeSegmentFn MergeSegment;

}  // namespace baton::kernels::ref
