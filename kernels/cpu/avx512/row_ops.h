// SPDX-License-Identifier: Apache-2.0
// Row operations of kernels/api/row_ops.h and the segment merge with AVX-512.
// Bits depend on the inputs alone: no instruction whose result differs between
// vendors (such as approximate reciprocals) is used.
#pragma once

#include "kernels/api/attention.h"
#include "kernels/api/row_ops.h"
#include "kernels/cpu/avx512/variant.h"

namespace baton::kernels::BATON_AVX512 {

RmsNormRowFn RmsNorm;
SwiGluRowFn SwiGlu;
AddRowFn Add;
AddTileFn AddTile;
RopeRowFn RopeAdjacent;
RopeRowFn RopeHalves;
MergeSegmentFn MergeSegment;

}  // namespace baton::kernels::BATON_AVX512
