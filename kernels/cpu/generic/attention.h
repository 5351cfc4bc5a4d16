// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/attention.h"

namespace baton::kernels::generic {

// float32 throughout; bf16 and int8 slices are widened first.
const AttentionFormat& Attention(KvElement element);
MergeSegmentFn MergeSegment;

}  // namespace baton::kernels::generic
