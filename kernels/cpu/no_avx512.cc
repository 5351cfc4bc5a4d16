// SPDX-License-Identifier: Apache-2.0
// Stands in for kernels/cpu/avx512 in builds for other processors.
#include "kernels/cpu/avx512/avx512_backend.h"

namespace baton::kernels {

const Backend* Avx512Backend() { return nullptr; }
const Backend* Avx512VnniBackend() { return nullptr; }

}  // namespace baton::kernels
