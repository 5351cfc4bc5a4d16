// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/row_ops.h"

namespace baton::kernels::ref {

RmsNormRowFn RmsNorm;
SwiGluRowFn SwiGlu;
AddRowFn Add;
AddTileFn AddTile;
RopeRowFn RopeAdjacent;
RopeRowFn RopeHalves;

}  // namespace baton::kernels::ref
