// SPDX-License-Identifier: Apache-2.0
// The float32 layouts that all backends share: panels [inputs][32] and tiles
// [inputs][tile rows], inputs padded with zeros to a multiple of 32. A backend
// adds its Multiply.
#pragma once

#include "kernels/api/linear.h"

namespace baton::kernels {

const ActivationFormat& F32Activation();

class F32Panels : public LinearFormat {
 public:
  const ActivationFormat& activation() const final;
  size_t PanelBytes(uint32_t inputs) const final;
  void PackPanel(const WeightRows& rows, std::byte* out) const final;
};

}  // namespace baton::kernels
