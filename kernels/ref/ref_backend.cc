// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/ref_backend.h"

#include "kernels/ref/attention.h"
#include "kernels/ref/linear.h"
#include "kernels/ref/row_ops.h"

namespace baton::kernels {
namespace {

class Ref final : public Backend {
 public:
  Ref() {
    rms_norm = ref::RmsNorm;
    swiglu = ref::SwiGlu;
    add = ref::Add;
    add_tile = ref::AddTile;
    rope_adjacent = ref::RopeAdjacent;
    rope_halves = ref::RopeHalves;
    merge_segment = ref::MergeSegment;
  }
  std::string_view name() const override { return "ref"; }
  bool available() const override { return true; }
  const LinearFormat& Linear(WeightType /*type*/, Precision /*precision*/) const override {
    return ref::Linear();
  }
  const AttentionFormat& Attention(KvElement element) const override {
    return ref::Attention(element);
  }
};

}  // namespace

const Backend& RefBackend() {
  static const Ref backend;
  return backend;
}

}  // namespace baton::kernels
