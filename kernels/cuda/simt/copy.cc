// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt/copy.h"

#include <cstdint>

namespace baton::simt {

void Copy16(void* to, const void* from) {
  auto* words = static_cast<uint32_t*>(to);
  const auto* source = static_cast<const uint32_t*>(from);
  for (int i = 0; i < 4; ++i) words[i] = source == nullptr ? 0 : source[i];
}

}  // namespace baton::simt
