// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/generic/generic_backend.h"

#include "kernels/cpu/generic/attention.h"
#include "kernels/cpu/generic/linear.h"
#include "kernels/cpu/generic/row_ops.h"

namespace baton::kernels {
namespace {

class Generic final : public Backend {
 public:
  Generic() {
    rms_norm = generic::RmsNorm;
    swiglu = generic::SwiGlu;
    add = generic::Add;
    add_tile = generic::AddTile;
    rope_adjacent = generic::RopeAdjacent;
    rope_halves = generic::RopeHalves;
    merge_segment = generic::MergeSegment;
  }
  std::string_view name() const override { return "generic"; }
  bool available() const override { return true; }
  const LinearFormat& Linear(WeightType /*type*/, Precision /*precision*/) const override {
    return generic::Linear();
  }
  const AttentionFormat& Attention(KvElement element) const override {
    return generic::Attention(element);
  }
};

}  // namespace

const Backend& GenericBackend() {
  static const Generic backend;
  return backend;
}

}  // namespace baton::kernels
