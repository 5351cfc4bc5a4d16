// SPDX-License-Identifier: Apache-2.0
// Panels of weights rounded to bf16 in pairs, [inputs / 2][32][2], with float32
// activations. A backend adds its Multiply.
#pragma once

#include "kernels/api/linear.h"

namespace baton::kernels {

class Bf16Panels : public LinearFormat {
 public:
  const ActivationFormat& activation() const final;
  size_t PanelBytes(uint32_t inputs) const final;
  void PackPanel(const WeightRows& rows, std::byte* out) const final;
};

}  // namespace baton::kernels
