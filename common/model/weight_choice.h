// SPDX-License-Identifier: Apache-2.0
// What the weights of a checkpoint become before they are packed: what an
// operator asks for with --weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"

namespace baton::model {

enum class WeightChoice : uint8_t {
  kStored,  // as the checkpoint has them
  kInt4,    // v and head Q8_0, all other matrices Q4_0
  kInt8,    // all matrices Q8_0
  kBf16,    // all matrices BF16
};

// "stored", "int4", "int8", "bf16".
std::string_view WeightChoiceName(WeightChoice choice);
const std::vector<std::string>& WeightChoiceNames();
// INVALID_ARGUMENT that lists the names.
absl::StatusOr<WeightChoice> ParseWeightChoice(std::string_view name);

// Sets convert_to of all matrices. Norms, biases and the embedding stay as they
// are stored. INVALID_ARGUMENT, with tensor and type, unless every matrix is
// F32, F16 or BF16: what is quantized already would only lose.
absl::Status ChooseWeights(WeightChoice choice, checkpoint::ModelWeights& weights);

}  // namespace baton::model
