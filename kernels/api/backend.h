// SPDX-License-Identifier: Apache-2.0
// A kernel backend: one table of everything the model executor calls. Adding a
// backend is a folder and a line in backends.cc.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/api/attention.h"
#include "kernels/api/linear.h"
#include "kernels/api/row_ops.h"

namespace baton::kernels {

enum class Precision : uint8_t { kExact, kFast };

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "ref", "generic", "avx2", "avx512vnni", "avx512"
  // True when this CPU can run it.
  virtual bool available() const = 0;
  // The format that weights of `type` are packed into; never null. kExact:
  // float32 weights and activations.
  virtual const LinearFormat& Linear(WeightType type, Precision precision) const = 0;
  virtual const AttentionFormat& Attention(KvElement element) const = 0;

  RmsNormRowFn* rms_norm = nullptr;
  SwiGluRowFn* swiglu = nullptr;
  AddRowFn* add = nullptr;
  AddTileFn* add_tile = nullptr;
  RopeRowFn* rope_adjacent = nullptr;
  RopeRowFn* rope_halves = nullptr;
  MergeSegmentFn* merge_segment = nullptr;
};

// All backends of this build, best first; "ref" is the last and always there.
const std::vector<const Backend*>& Backends();
// The first available one for "auto", or the one named; null when it is
// unknown or this CPU lacks it.
const Backend* FindBackend(std::string_view isa);

}  // namespace baton::kernels
