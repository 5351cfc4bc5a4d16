// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/backend.h"

namespace baton::kernels {

// Null in builds for other processors; available() asks this one.
const Backend* Avx512Backend();

}  // namespace baton::kernels
