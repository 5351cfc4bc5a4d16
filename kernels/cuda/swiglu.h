// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/device/device.h"

namespace baton::gpu {

BATON_DEVICE float GatedUp(float gate, float up) {
  constexpr float kLog2E = 1.44269504f;
  return MulRn(DivRn(gate, AddRn(1.0f, Exp2(MulRn(-gate, kLog2E)))), up);
}

}  // namespace baton::gpu
