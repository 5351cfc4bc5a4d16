// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/backend.h"

namespace baton::kernels {

// For processors with AVX2, FMA and F16C. Null in builds for others;
// available() asks this one.
const Backend* Avx2Backend();

}  // namespace baton::kernels
