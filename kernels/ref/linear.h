// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/linear.h"

namespace baton::kernels::ref {

// float32 weights and activations, float64 sums.
const LinearFormat& Linear();

}  // namespace baton::kernels::ref
