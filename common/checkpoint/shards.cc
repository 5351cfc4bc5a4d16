// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/shards.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/json.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/torch_file.h"

namespace baton::checkpoint {

const WeightFormat kSafetensorsFormat{.name = "safetensors",
                                      .extension = ".safetensors",
                                      .single = "model.safetensors",
                                      .index = "model.safetensors.index.json",
                                      .read = ReadSafetensors};
const WeightFormat kTorchFormat{.name = "pytorch",
                                .extension = ".bin",
                                .single = "pytorch_model.bin",
                                .index = "pytorch_model.bin.index.json",
                                .read = ReadTorchFile};

const WeightFormat* FindWeightFormat(const Folder& folder) {
  for (const WeightFormat* format : {&kSafetensorsFormat, &kTorchFormat}) {
    if (folder.Has(format->single) || folder.Has(format->index)) return format;
  }
  return nullptr;
}

absl::StatusOr<std::vector<TensorView>> ReadShards(const Folder& folder, const WeightFormat& format,
                                                   std::vector<File>& files) {
  if (!folder.Has(format.index)) {
    BATON_ASSIGN_OR_RETURN(File file, folder.Open(format.single));
    files.push_back(file);
    return format.read(file);
  }
  BATON_ASSIGN_OR_RETURN(const File index_file, folder.Open(format.index));
  BATON_ASSIGN_OR_RETURN(const Json index, ParseJsonObject(index_file.text(), index_file.name));
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(index_file.name, ": ", std::string(what)));
  };
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) return error("no weight_map");

  std::unordered_map<std::string, std::string> shard_of;
  std::map<std::string, size_t> shards;  // with the number of tensors each should hold
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) return error(absl::StrCat("tensor \"", name, "\" has no file name"));
    shard_of.emplace(name, shard.get<std::string>());
    ++shards[shard.get<std::string>()];
  }
  std::vector<TensorView> all;
  for (const auto& [shard, count] : shards) {
    BATON_ASSIGN_OR_RETURN(File file, folder.Open(shard));
    files.push_back(file);
    BATON_ASSIGN_OR_RETURN(std::vector<TensorView> tensors, format.read(file));
    for (TensorView& tensor : tensors) {
      const auto expected = shard_of.find(tensor.name);
      if (expected == shard_of.end() || expected->second != shard) {
        return error(
            absl::StrCat("tensor \"", tensor.name, "\" of ", shard, " is not listed there"));
      }
      all.push_back(std::move(tensor));
    }
    if (tensors.size() != count) {
      return error(absl::StrCat(shard, " holds ", tensors.size(), " tensors, not ", count));
    }
  }
  return all;
}

}  // namespace baton::checkpoint
