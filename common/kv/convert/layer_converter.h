// SPDX-License-Identifier: Apache-2.0
// KV blocks of one type from blocks of another: what a hand-off between
// workers of different --kv-dtype, or with --kv-wire, needs.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv/layout.h"
#include "kernels/api/attention.h"

namespace baton::kv {

// Converts one layer of one block at a time. Deterministic: the same bytes give
// the same bytes, on every machine. To float32 nothing is lost, to bf16 each
// number is rounded to nearest, to int8 each K and V of a head is quantized as
// the int8 worker does it with its own; keys are rotated or turned back.
//
// Thread safety: immutable; Convert uses memory of the calling thread.
class LayerConverter final {
 public:
  // FAILED_PRECONDITION when a slice layout is not one of those that all
  // backends share, or the shapes differ.
  static absl::StatusOr<LayerConverter> Create(const KvLayout& from, const KvLayout& to);

  // Reads from.LayerBytes(), whatever they hold, and writes to.LayerBytes().
  // REQUIRES: both are aligned for float.
  void Convert(const std::byte* from, std::byte* to) const;

 private:
  LayerConverter(kernels::KvElement from, kernels::KvElement to, uint32_t kv_heads,
                 uint32_t head_dim)
      : from_(from), to_(to), kv_heads_(kv_heads), head_dim_(head_dim) {}

  kernels::KvElement from_, to_;
  uint32_t kv_heads_, head_dim_;
};

// Whether blocks of `layout` can be converted at all.
bool IsConvertible(const KvLayout& layout);

// `layout` as it is when its blocks are stored as `type`. FAILED_PRECONDITION
// when they cannot be converted.
absl::StatusOr<KvLayout> StoredAs(const KvLayout& layout, KvType type);

// Whether a worker with `ours` may take over KV that was computed with `theirs`:
// of the same model and shape, and with equal numerics_id, or in slice layouts
// that can be converted. FAILED_PRECONDITION names the first field that stands in
// the way.
absl::StatusOr<KvOrigin> CheckHandoff(const KvLayout& ours, const KvLayout& theirs);

}  // namespace baton::kv
