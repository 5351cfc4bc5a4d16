// SPDX-License-Identifier: Apache-2.0
#include "common/model/compute_plan.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/convert_rows.h"
#include "common/model/packed_matrix.h"

namespace baton::model {
namespace {

using checkpoint::LayerWeights;
using checkpoint::LinearView;

constexpr uint32_t kHeadDimStep = 16;

absl::StatusOr<const kernels::Backend*> ChooseBackend(const std::string& isa) {
  const kernels::Backend* backend = kernels::FindBackend(isa);
  if (backend != nullptr) return backend;
  std::vector<std::string> names = {"auto"};
  bool known = false;
  for (const kernels::Backend* candidate : kernels::Backends()) {
    known = known || candidate->name() == isa;
    if (candidate->available()) names.emplace_back(candidate->name());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "isa \"", isa, "\" ", known ? "needs instructions that this CPU lacks" : "does not exist",
      "; possible here: ", absl::StrJoin(names, ", ")));
}

// Names of all linear formats and conversions in use: any of them decides about
// bits.
std::string LinearFormatNames(const checkpoint::ModelWeights& weights,
                              const kernels::Backend& backend, kernels::Precision precision) {
  std::set<std::string> names;
  const auto add = [&](const LinearView& view) {
    names.emplace(backend.Linear(ToWeightType(PackedType(view)), precision).name());
    if (const std::string conversion = ConversionName(view); !conversion.empty()) {
      names.insert(conversion);
    }
  };
  add(weights.head);
  for (const LayerWeights& layer : weights.layers) {
    for (const LinearView* view : {&layer.q, &layer.k, &layer.v, &layer.attention_out, &layer.gate,
                                   &layer.up, &layer.down}) {
      add(*view);
    }
  }
  return absl::StrJoin(names, ",");
}

kernels::KvElement ElementOf(kv::KvType type) {
  switch (type) {
    case kv::KvType::kF32:
      return kernels::KvElement::kF32;
    case kv::KvType::kBf16:
      break;
    case kv::KvType::kInt8:
      return kernels::KvElement::kInt8;
  }
  return kernels::KvElement::kBf16;
}

}  // namespace

absl::StatusOr<ComputePlan> PlanCompute(const checkpoint::Checkpoint& checkpoint,
                                        const checkpoint::ModelWeights& weights,
                                        const LoadOptions& options) {
  ComputePlan plan;
  BATON_ASSIGN_OR_RETURN(plan.backend, ChooseBackend(options.isa));
  const bool exact = options.precision == Precision::kExact;
  plan.precision = exact ? kernels::Precision::kExact : kernels::Precision::kFast;
  const kv::KvType type = options.kv_type.value_or(exact ? kv::KvType::kF32 : kv::KvType::kBf16);
  plan.attention = &plan.backend->Attention(ElementOf(type));

  const checkpoint::ModelConfig& config = checkpoint.config();
  plan.layout.layers = config.layers;
  plan.layout.kv_heads = config.kv_heads;
  plan.layout.head_dim = (config.head_dim + kHeadDimStep - 1) / kHeadDimStep * kHeadDimStep;
  plan.layout.type = type;
  plan.layout.slice_layout = std::string(plan.attention->slice_layout());
  plan.layout.model_fingerprint = checkpoint.Fingerprint();
  plan.layout.compute_id =
      absl::StrCat(std::string(plan.backend->name()), exact ? " exact" : " fast",
                   " linear=", LinearFormatNames(weights, *plan.backend, plan.precision));
  plan.layout.numerics_id =
      absl::StrCat(plan.layout.compute_id, " attention=", std::string(plan.attention->name()),
                   " kv=", std::string(kv::KvTypeName(type)));
  BATON_ASSIGN_OR_RETURN(plan.decay, DecayTable(options.head_decay, config.layers, config.heads));
  if (!plan.decay.empty()) {
    // Such KV is of another model, as it were, and not to be taken for that of others.
    plan.layout.model_variant = DecayName(plan.decay);
    const std::string name = absl::StrCat(" ", plan.layout.model_variant);
    plan.layout.compute_id += name;
    plan.layout.numerics_id += name;
  }
  return plan;
}

}  // namespace baton::model
