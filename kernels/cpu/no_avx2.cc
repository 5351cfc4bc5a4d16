// SPDX-License-Identifier: Apache-2.0
// Stands in for kernels/cpu/avx2 in builds for other processors.
#include "kernels/cpu/avx2/avx2_backend.h"

namespace baton::kernels {

const Backend* Avx2Backend() { return nullptr; }

}  // namespace baton::kernels
