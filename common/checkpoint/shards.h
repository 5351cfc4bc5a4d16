// SPDX-License-Identifier: Apache-2.0
// Weights of a Hugging Face folder: one file, or several and their index.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file.h"

namespace baton::checkpoint {

// A kind of weight file and how a folder names it.
struct WeightFormat {
  std::string_view name;       // what Checkpoint::format() says
  std::string_view extension;  // with the dot
  std::string_view single, index;
  absl::StatusOr<std::vector<TensorView>> (*read)(const File& file);
};
extern const WeightFormat kSafetensorsFormat, kTorchFormat;

// The format whose files `folder` has; safetensors when it has both, null when
// it has neither.
const WeightFormat* FindWeightFormat(const Folder& folder);

// The single file, or all shards that the index names; `files` receives what
// has to stay mapped. INVALID_ARGUMENT also when index and shards disagree.
absl::StatusOr<std::vector<TensorView>> ReadShards(const Folder& folder, const WeightFormat& format,
                                                   std::vector<File>& files);

}  // namespace baton::checkpoint
