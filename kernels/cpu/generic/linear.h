// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/linear.h"

namespace baton::kernels::generic {

// float32 weights, activations and sums; one multiply and one add per input,
// in order.
const LinearFormat& Linear();

}  // namespace baton::kernels::generic
