// SPDX-License-Identifier: Apache-2.0
// KV slices of one element type from those of another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api/attention.h"

namespace baton::kernels {

// One slice of all kBlockTokens tokens, in the layouts of kv_slices.h, whatever
// its bytes are. The same type is copied; else numbers are widened to float32
// and stored again; keys are rotated on the way to int8 and turned back on the
// way from it. From float32, each token gets the bytes that Append would have
// given it.
void ConvertKeys(KvElement from, const std::byte* slice, KvElement to, uint32_t head_dim,
                 std::byte* out);
void ConvertValues(KvElement from, const std::byte* slice, KvElement to, uint32_t head_dim,
                   std::byte* out);

}  // namespace baton::kernels
