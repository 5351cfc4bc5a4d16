// SPDX-License-Identifier: Apache-2.0
// The oracle: float64 accumulation, no regard for speed.
#pragma once

#include "kernels/api/backend.h"

namespace baton::kernels {

const Backend& RefBackend();

}  // namespace baton::kernels
