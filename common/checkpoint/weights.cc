// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/family.h"
#include "common/checkpoint/row_quant.h"

namespace baton::checkpoint {
namespace {

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

class WeightMapper {
 public:
  WeightMapper(const ModelConfig& config, const TensorNames& names,
               const std::vector<TensorView>& tensors)
      : config_(config), names_(names) {
    for (const TensorView& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }

  absl::StatusOr<ModelWeights> Run() {
    ModelWeights weights;
    BATON_ASSIGN_OR_RETURN(weights.embedding, Take(std::string(names_.embedding) + ".weight",
                                                   {config_.vocabulary, config_.hidden}));
    if (IsRowType(weights.embedding->type)) {
      return absl::UnimplementedError(absl::StrCat("tensor \"", weights.embedding->name,
                                                   "\" has type ", weights.embedding->type_name,
                                                   ", which only matrices may have"));
    }
    for (uint32_t layer = 0; layer < config_.layers; ++layer) {
      BATON_ASSIGN_OR_RETURN(weights.layers.emplace_back(), MapLayer(layer));
    }
    BATON_ASSIGN_OR_RETURN(weights.final_norm, Norm(std::string(names_.final_norm)));
    if (config_.tied_head) {
      weights.head = {.tensor = weights.embedding, .row_begin = 0, .rows = config_.vocabulary};
      used_.insert(absl::StrCat(std::string(names_.head), ".weight"));
    } else {
      BATON_ASSIGN_OR_RETURN(weights.head, Linear(std::string(names_.head), config_.vocabulary,
                                                  config_.hidden, /*bias=*/false));
    }
    BATON_RETURN_IF_ERROR(CheckAllUsed());
    return weights;
  }

 private:
  absl::StatusOr<const TensorView*> Take(const std::string& name,
                                         const std::vector<uint64_t>& shape) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\" is missing"));
    }
    const TensorView& tensor = *found->second;
    if (tensor.type == TensorType::kOther) {
      return absl::UnimplementedError(absl::StrCat("tensor \"", name, "\" has type ",
                                                   tensor.type_name, ", which is not supported"));
    }
    if (tensor.shape != shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", name, "\" has shape ", ShapeText(tensor.shape), ", not ",
                       ShapeText(shape), " as the configuration says"));
    }
    used_.insert(name);
    return &tensor;
  }

  absl::StatusOr<const TensorView*> Norm(const std::string& name) {
    return Take(absl::StrCat(name, ".weight"), {config_.hidden});
  }

  absl::StatusOr<LinearView> Linear(const std::string& name, uint64_t rows, uint64_t columns,
                                    bool bias) {
    LinearView linear{.tensor = nullptr, .row_begin = 0, .rows = rows};
    BATON_ASSIGN_OR_RETURN(linear.tensor, Take(absl::StrCat(name, ".weight"), {rows, columns}));
    if (bias) {
      BATON_ASSIGN_OR_RETURN(linear.bias, Take(absl::StrCat(name, ".bias"), {rows}));
    }
    return linear;
  }

  // Rows of a fused matrix, behind those of `before`.
  static LinearView Slice(const LinearView& fused, const LinearView& before, uint64_t rows) {
    LinearView slice = fused;
    slice.row_begin = before.row_begin + before.rows;
    slice.rows = rows;
    return slice;
  }

  absl::Status MapQkv(const std::string& prefix, LayerWeights& layer) {
    const uint64_t q_rows = uint64_t{config_.heads} * config_.head_dim;
    const uint64_t kv_rows = uint64_t{config_.kv_heads} * config_.head_dim;
    if (names_.qkv.empty()) {
      for (const auto& [name, rows, view] :
           {std::tuple(names_.q, q_rows, &layer.q), std::tuple(names_.k, kv_rows, &layer.k),
            std::tuple(names_.v, kv_rows, &layer.v)}) {
        BATON_ASSIGN_OR_RETURN(
            *view, Linear(prefix + std::string(name), rows, config_.hidden, config_.qkv_bias));
      }
      return absl::OkStatus();
    }
    BATON_ASSIGN_OR_RETURN(const LinearView fused,
                           Linear(prefix + std::string(names_.qkv), q_rows + 2 * kv_rows,
                                  config_.hidden, config_.qkv_bias));
    layer.q = Slice(fused, {}, q_rows);
    layer.k = Slice(fused, layer.q, kv_rows);
    layer.v = Slice(fused, layer.k, kv_rows);
    return absl::OkStatus();
  }

  absl::Status MapFfn(const std::string& prefix, LayerWeights& layer) {
    if (names_.gate_up.empty()) {
      BATON_ASSIGN_OR_RETURN(layer.gate, Linear(prefix + std::string(names_.gate), config_.ffn,
                                                config_.hidden, /*bias=*/false));
      BATON_ASSIGN_OR_RETURN(layer.up, Linear(prefix + std::string(names_.up), config_.ffn,
                                              config_.hidden, /*bias=*/false));
    } else {
      BATON_ASSIGN_OR_RETURN(const LinearView fused,
                             Linear(prefix + std::string(names_.gate_up), 2 * uint64_t{config_.ffn},
                                    config_.hidden, /*bias=*/false));
      layer.gate = Slice(fused, {}, config_.ffn);
      layer.up = Slice(fused, layer.gate, config_.ffn);
    }
    BATON_ASSIGN_OR_RETURN(layer.down, Linear(prefix + std::string(names_.down), config_.hidden,
                                              config_.ffn, /*bias=*/false));
    return absl::OkStatus();
  }

  absl::StatusOr<LayerWeights> MapLayer(uint32_t index) {
    const std::string prefix = absl::StrCat(std::string(names_.layer_prefix), index, ".");
    LayerWeights layer;
    BATON_ASSIGN_OR_RETURN(layer.attention_norm, Norm(prefix + std::string(names_.attention_norm)));
    BATON_RETURN_IF_ERROR(MapQkv(prefix, layer));
    BATON_ASSIGN_OR_RETURN(layer.attention_out,
                           Linear(prefix + std::string(names_.attention_out), config_.hidden,
                                  uint64_t{config_.heads} * config_.head_dim, /*bias=*/false));
    BATON_ASSIGN_OR_RETURN(layer.ffn_norm, Norm(prefix + std::string(names_.ffn_norm)));
    BATON_RETURN_IF_ERROR(MapFfn(prefix, layer));
    return layer;
  }

  absl::Status CheckAllUsed() const {
    for (const auto& [name, tensor] : by_name_) {
      const auto ends_name = [&name = name](std::string_view suffix) {
        return name.ends_with(suffix);
      };
      if (used_.contains(std::string(name)) ||
          std::any_of(names_.ignored.begin(), names_.ignored.end(), ends_name)) {
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", std::string(name), "\" is no part of a ", config_.layers,
                       "-layer ", config_.architecture, " model as it is known here"));
    }
    return absl::OkStatus();
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;
  std::unordered_set<std::string> used_;
};

}  // namespace

absl::StatusOr<ModelWeights> MapWeights(const ModelConfig& config, const TensorNames& names,
                                        const std::vector<TensorView>& tensors) {
  return WeightMapper(config, names, tensors).Run();
}

}  // namespace baton::checkpoint
