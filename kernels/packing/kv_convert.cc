// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/kv_convert.h"

#include <cstring>
#include <vector>

#include "kernels/packing/hadamard.h"
#include "kernels/packing/kv_slices.h"

namespace baton::kernels {
namespace {

// A slice as float32, in memory of the thread.
float* Widened(uint32_t head_dim) {
  thread_local std::vector<float> memory;
  memory.resize(size_t{kBlockTokens} * head_dim);
  return memory.data();
}

// Widening and storing again would quantize a second time.
void Copy(KvElement element, const std::byte* slice, uint32_t head_dim, std::byte* out) {
  std::memcpy(out, slice, KvSliceBytes(element, head_dim));
}

}  // namespace

void ConvertKeys(KvElement from, const std::byte* slice, KvElement to, uint32_t head_dim,
                 std::byte* out) {
  if (from == to) return Copy(from, slice, head_dim, out);
  float* columns = Widened(head_dim);
  ExpandKeys(from, slice, head_dim, columns);
  const bool rotated = from == KvElement::kInt8, rotate = to == KvElement::kInt8;
  if (rotated != rotate) HadamardColumns(columns, head_dim);
  StoreKeys(to, columns, head_dim, out);
}

void ConvertValues(KvElement from, const std::byte* slice, KvElement to, uint32_t head_dim,
                   std::byte* out) {
  if (from == to) return Copy(from, slice, head_dim, out);
  float* rows = Widened(head_dim);
  ExpandValues(from, slice, head_dim, rows);
  StoreValues(to, rows, head_dim, out);
}

}  // namespace baton::kernels
