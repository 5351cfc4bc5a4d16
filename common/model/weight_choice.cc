// SPDX-License-Identifier: Apache-2.0
#include "common/model/weight_choice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace baton::model {
namespace {

using checkpoint::LayerWeights;
using checkpoint::LinearView;
using checkpoint::TensorType;

absl::Status Convert(WeightChoice choice, TensorType type, LinearView& view) {
  switch (view.tensor->type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBf16:
      if (type != view.tensor->type) view.convert_to = type;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "weights ", std::string(WeightChoiceName(choice)), ": tensor \"", view.tensor->name,
          "\" has type ", std::string(TensorTypeName(view.tensor->type)),
          " already; only F32, F16 and BF16 are converted (use weights stored)"));
  }
}

}  // namespace

const std::vector<std::string>& WeightChoiceNames() {
  static const auto* const names = new std::vector<std::string>{"stored", "int4", "int8", "bf16"};
  return *names;
}

std::string_view WeightChoiceName(WeightChoice choice) {
  return WeightChoiceNames()[static_cast<size_t>(choice)];
}

absl::StatusOr<WeightChoice> ParseWeightChoice(std::string_view name) {
  for (const WeightChoice choice :
       {WeightChoice::kStored, WeightChoice::kInt4, WeightChoice::kInt8, WeightChoice::kBf16}) {
    if (WeightChoiceName(choice) == name) return choice;
  }
  return absl::InvalidArgumentError(absl::StrCat("weights must be one of ",
                                                 absl::StrJoin(WeightChoiceNames(), ", "),
                                                 ", got \"", std::string(name), "\""));
}

absl::Status ChooseWeights(WeightChoice choice, checkpoint::ModelWeights& weights) {
  if (choice == WeightChoice::kStored) return absl::OkStatus();
  const TensorType fine = choice == WeightChoice::kBf16 ? TensorType::kBf16 : TensorType::kQ8_0;
  const TensorType most = choice == WeightChoice::kInt4 ? TensorType::kQ4_0 : fine;
  for (LayerWeights& layer : weights.layers) {
    for (LinearView* view :
         {&layer.q, &layer.k, &layer.attention_out, &layer.gate, &layer.up, &layer.down}) {
      BATON_RETURN_IF_ERROR(Convert(choice, most, *view));
    }
    // Few rows, and what is lost in them is lost in all that a query sees.
    BATON_RETURN_IF_ERROR(Convert(choice, fine, layer.v));
  }
  return Convert(choice, fine, weights.head);
}

}  // namespace baton::model
