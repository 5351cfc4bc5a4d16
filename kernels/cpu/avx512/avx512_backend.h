// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/api/backend.h"

namespace baton::kernels {

// With BF16 instructions, and with VNNI alone. Null in builds for other
// processors; available() asks this one.
const Backend* Avx512Backend();
const Backend* Avx512VnniBackend();

}  // namespace baton::kernels
