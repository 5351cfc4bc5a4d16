// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/avx512/avx512_backend.h"

namespace baton::kernels::testing {

// The better of both variants that this CPU runs, or null; the suite in
// tests/kernels compares the other one with ref, too.
inline const Backend* BackendUnderTest() {
  for (const Backend* backend : {Avx512Backend(), Avx512VnniBackend()}) {
    if (backend != nullptr && backend->available()) return backend;
  }
  return nullptr;
}

}  // namespace baton::kernels::testing
