// SPDX-License-Identifier: Apache-2.0
// Plain C++ that the compiler vectorizes: any x86-64 or AArch64. Its float32
// arithmetic is lane-wise, so bits do not depend on the vector width.
#pragma once

#include "kernels/api/backend.h"

namespace baton::kernels {

const Backend& GenericBackend();

}  // namespace baton::kernels
