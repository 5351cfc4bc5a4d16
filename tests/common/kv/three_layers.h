// SPDX-License-Identifier: Apache-2.0
// The layout that tests of blocks share.
#pragma once

#include "common/kv/layout.h"

namespace baton::kv {

inline KvLayout ThreeLayers() {
  KvLayout layout;
  layout.layers = 3;
  layout.kv_heads = 2;
  layout.head_dim = 16;
  layout.type = KvType::kBf16;
  return layout;
}

}  // namespace baton::kv
