// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/weights.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/half_float.h"
#include "common/base/status_macros.h"
#include "common/model/convert_rows.h"
#include "common/model/gpu/upload_ring.h"
#include "common/model/packed_matrix.h"
#include "common/model/rope_table.h"
#include "kernels/cuda/api/pack.h"

namespace baton::model::gpu {
namespace {

using ::baton::kernels::WeightType;
using checkpoint::LinearView;
using checkpoint::TensorType;
using checkpoint::TensorView;

WeightType TypeOf(const LinearView& view) { return ToWeightType(PackedType(view)); }

// A row of a matrix to be packed.
struct Row {
  const LinearView* view;
  uint32_t index;  // of the view's rows
};

std::vector<Row> RowsOf(std::initializer_list<const LinearView*> views) {
  std::vector<Row> rows;
  for (const LinearView* view : views) {
    for (uint32_t i = 0; i < view->rows; ++i) rows.push_back({view, i});
  }
  return rows;
}

// Eight gates, then their eight ups: a tile of the SwiGLU epilogue.
std::vector<Row> GatesAndUps(const LinearView& gate, const LinearView& up) {
  constexpr uint32_t kRun = dev::kTileOutputs / 2;
  std::vector<Row> rows;
  for (uint32_t i = 0; i < gate.rows; i += kRun) {
    for (uint32_t j = 0; j < kRun; ++j) rows.push_back({&gate, i + j});
    for (uint32_t j = 0; j < kRun; ++j) rows.push_back({&up, i + j});
  }
  return rows;
}

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// Pinned memory in all: slots of so much, or of a tile's rows where those take more.
constexpr size_t kSlotBytes = size_t{16} << 20;

// As its type for the device stores it (StoredAs).
void WriteRow(const Row& row, std::byte* out) {
  const LinearView& view = *row.view;
  const uint64_t index = view.row_begin + row.index, inputs = view.tensor->shape[1];
  const TensorType packed = PackedType(view);
  if (packed != view.tensor->type) return ConvertRows(view, index, 1, out);
  const size_t row_bytes = RowBytes(packed, inputs);
  const std::byte* stored = &view.tensor->data[index * row_bytes];
  if (dev::StoredTypeOf(ToWeightType(packed)).has_value()) {
    std::memcpy(out, stored, row_bytes);
    return;
  }
  const std::vector<float> values = Values(*view.tensor, index * inputs, inputs);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = FloatToBf16(values[i]);
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
  }
}

// What rows are sent as: their packed type, or bf16 where the device does not know
// that.
dev::StoredType StoredAs(const LinearView& view) {
  return dev::StoredTypeOf(TypeOf(view)).value_or(dev::StoredType::kBf16);
}
size_t StoredBytes(const LinearView& view) {
  const bool known = dev::StoredTypeOf(TypeOf(view)).has_value();
  return RowBytes(known ? PackedType(view) : TensorType::kBf16, view.tensor->shape[1]);
}

class Loader final {
 public:
  Loader(const Device& device, const checkpoint::Checkpoint& checkpoint, UploadRing& ring)
      : device_(device), checkpoint_(checkpoint), ring_(ring) {}

  absl::StatusOr<Matrix> Load(const std::vector<Row>& rows, const std::string& name) {
    Matrix matrix;
    const TensorView& tensor = *rows.front().view->tensor;
    matrix.inputs = static_cast<uint32_t>(tensor.shape[1]);
    matrix.outputs = static_cast<uint32_t>(rows.size());
    matrix.format = dev::FormatOf(TypeOf(*rows.front().view));
    const size_t bytes = dev::WeightBytes(matrix.format, matrix.outputs, matrix.inputs);
    BATON_ASSIGN_OR_RETURN(matrix.data, device_.Allocate(bytes, name));
    bytes_ += bytes;
    BATON_RETURN_IF_ERROR(Send(rows, matrix));
    if (const std::vector<float> bias = BiasOf(rows); !bias.empty()) {
      BATON_ASSIGN_OR_RETURN(matrix.bias, Keep(BytesOf(bias), absl::StrCat(name, " bias")));
    }
    for (const Row& row : rows) {
      if (row.index == 0) checkpoint_.ReleasePages(*row.view->tensor);
    }
    return matrix;
  }

  absl::StatusOr<Buffer> Keep(std::span<const std::byte> bytes, const std::string& name) {
    bytes_ += bytes.size();
    BATON_ASSIGN_OR_RETURN(Buffer buffer, device_.Allocate(bytes.size(), name));
    BATON_RETURN_IF_ERROR(ring_.Copy(buffer.data(), bytes));
    return buffer;
  }

  absl::StatusOr<Buffer> LoadVector(const TensorView& tensor) {
    return Keep(BytesOf(Values(tensor, 0, tensor.shape[0])), tensor.name);
  }

  // F32, F16 and BF16 tables as they are; of block types, float16.
  absl::StatusOr<Buffer> LoadTable(const TensorView& tensor, dev::TableType* type) {
    *type = tensor.type == TensorType::kF32    ? dev::TableType::kF32
            : tensor.type == TensorType::kBf16 ? dev::TableType::kBf16
                                               : dev::TableType::kF16;
    if (tensor.type == TensorType::kF32 || tensor.type == TensorType::kF16 ||
        tensor.type == TensorType::kBf16) {
      return Keep(tensor.data, tensor.name);
    }
    const uint64_t hidden = tensor.shape[1], row_bytes = hidden * sizeof(uint16_t);
    BATON_ASSIGN_OR_RETURN(Buffer table,
                           device_.Allocate(tensor.shape[0] * row_bytes, tensor.name));
    bytes_ += table.bytes();
    std::vector<uint16_t> halves(hidden * std::max<uint64_t>(1, ring_.slot_bytes() / row_bytes));
    for (uint64_t row = 0; row < tensor.shape[0]; row += halves.size() / hidden) {
      const uint64_t rows = std::min<uint64_t>(halves.size() / hidden, tensor.shape[0] - row);
      const std::vector<float> values = Values(tensor, row * hidden, rows * hidden);
      std::transform(values.begin(), values.end(), halves.begin(), FloatToHalf);
      BATON_RETURN_IF_ERROR(ring_.Copy(table.data() + row * row_bytes,
                                       std::as_bytes(std::span(halves)).first(rows * row_bytes)));
    }
    return table;
  }

  uint64_t bytes() const { return bytes_; }

 private:
  // As many tiles at a time as a slot holds; the device packs them.
  absl::Status Send(const std::vector<Row>& rows, const Matrix& matrix) {
    const LinearView& view = *rows.front().view;
    const size_t row_bytes = StoredBytes(view);
    const size_t tile_bytes =
        size_t{dev::GroupsOf(matrix.inputs)} * dev::RecordBytes(matrix.format);
    const size_t at_once = ring_.slot_bytes() / row_bytes / dev::kTileOutputs * dev::kTileOutputs;
    for (size_t first = 0; first < rows.size(); first += at_once) {
      const size_t count = std::min(at_once, rows.size() - first);
      BATON_ASSIGN_OR_RETURN(const std::span<std::byte> host, ring_.Next());
      for (size_t i = 0; i < count; ++i) WriteRow(rows[first + i], &host[i * row_bytes]);
      const std::byte* sent = ring_.Send(count * row_bytes);
      device_.table().pack_weights({StoredAs(view), sent, row_bytes,
                                    matrix.data.data() + first / dev::kTileOutputs * tile_bytes,
                                    static_cast<uint32_t>(count), matrix.inputs},
                                   ring_.stream());
    }
    return absl::OkStatus();
  }

  static std::vector<float> BiasOf(const std::vector<Row>& rows) {
    std::vector<float> bias;
    bool some = false;
    for (const Row& row : rows) {
      const TensorView* tensor = row.view->bias;
      some = some || tensor != nullptr;
      bias.push_back(tensor == nullptr ? 0
                                       : Values(*tensor, row.view->row_begin + row.index, 1)[0]);
    }
    return some ? bias : std::vector<float>{};
  }

  const Device& device_;
  const checkpoint::Checkpoint& checkpoint_;
  UploadRing& ring_;
  uint64_t bytes_ = 0;
};

// A slot holds a tile of any matrix.
size_t SlotBytes(const checkpoint::ModelWeights& stored) {
  size_t most = StoredBytes(stored.head);
  for (const checkpoint::LayerWeights& layer : stored.layers) {
    for (const LinearView* view : {&layer.q, &layer.k, &layer.v, &layer.attention_out, &layer.gate,
                                   &layer.up, &layer.down}) {
      most = std::max(most, StoredBytes(*view));
    }
  }
  return std::max(kSlotBytes, most * dev::kTileOutputs);
}

absl::Status LoadQkv(const checkpoint::LayerWeights& stored, Loader& loader, Layer& layer) {
  if (TypeOf(stored.q) == TypeOf(stored.k) && TypeOf(stored.q) == TypeOf(stored.v)) {
    BATON_ASSIGN_OR_RETURN(
        Matrix all, loader.Load(RowsOf({&stored.q, &stored.k, &stored.v}), stored.q.tensor->name));
    layer.qkv.push_back(std::move(all));
    return absl::OkStatus();
  }
  uint32_t column = 0;
  for (const LinearView* view : {&stored.q, &stored.k, &stored.v}) {
    BATON_ASSIGN_OR_RETURN(Matrix part, loader.Load(RowsOf({view}), view->tensor->name));
    part.column = std::exchange(column, column + part.outputs);
    layer.qkv.push_back(std::move(part));
  }
  return absl::OkStatus();
}

absl::StatusOr<Layer> LoadLayer(const checkpoint::LayerWeights& stored, Loader& loader) {
  if (TypeOf(stored.gate) != TypeOf(stored.up)) {
    return absl::UnimplementedError(absl::StrCat(stored.gate.tensor->name, " and ",
                                                 stored.up.tensor->name,
                                                 " have two types: --device cpu takes them"));
  }
  Layer layer;
  BATON_ASSIGN_OR_RETURN(layer.attention_norm, loader.LoadVector(*stored.attention_norm));
  BATON_ASSIGN_OR_RETURN(layer.ffn_norm, loader.LoadVector(*stored.ffn_norm));
  BATON_RETURN_IF_ERROR(LoadQkv(stored, loader, layer));
  BATON_ASSIGN_OR_RETURN(layer.attention_out, loader.Load(RowsOf({&stored.attention_out}),
                                                          stored.attention_out.tensor->name));
  BATON_ASSIGN_OR_RETURN(
      layer.gate_up, loader.Load(GatesAndUps(stored.gate, stored.up), stored.gate.tensor->name));
  BATON_ASSIGN_OR_RETURN(layer.down, loader.Load(RowsOf({&stored.down}), stored.down.tensor->name));
  return layer;
}

std::vector<float> Angles(const checkpoint::ModelConfig& config) {
  const RopeTable table(config.context, config.rotary_dims, config.rope_base);
  std::vector<float> cosines, sines;
  for (uint32_t position = 0; position < config.context; ++position) {
    const auto cos = table.cos(position), sin = table.sin(position);
    cosines.insert(cosines.end(), cos.begin(), cos.end());
    sines.insert(sines.end(), sin.begin(), sin.end());
  }
  cosines.insert(cosines.end(), sines.begin(), sines.end());
  return cosines;
}

absl::Status CheckSizes(const checkpoint::ModelConfig& config) {
  const auto refuse = [](absl::string_view what, uint32_t value, absl::string_view rule) {
    return absl::InvalidArgumentError(absl::StrCat("the model's ", what, " is ", value,
                                                   "; the GPU kernels take ", rule,
                                                   " (--device cpu takes any)"));
  };
  if (config.head_dim != 16 && config.head_dim != 64 && config.head_dim != 128) {
    return refuse("head size", config.head_dim, "16, 64 and 128");
  }
  const uint32_t heads = config.heads * config.head_dim;
  const std::pair<const char*, uint32_t> widths[] = {{"hidden size", config.hidden},
                                                     {"feed-forward size", config.ffn},
                                                     {"width of all heads", heads}};
  for (const auto& width : widths) {
    if (width.second % dev::kGroupInputs != 0) {
      return refuse(width.first, width.second, "multiples of 32");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const checkpoint::Checkpoint& checkpoint,
                                    const checkpoint::ModelWeights& stored,
                                    const checkpoint::ModelConfig& config, const Device& device) {
  BATON_RETURN_IF_ERROR(CheckSizes(config));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<UploadRing> ring,
                         UploadRing::Create(device, SlotBytes(stored)));
  Loader loader(device, checkpoint, *ring);
  Weights weights;
  BATON_ASSIGN_OR_RETURN(weights.embedding,
                         loader.LoadTable(*stored.embedding, &weights.table_type));
  for (const checkpoint::LayerWeights& layer : stored.layers) {
    BATON_ASSIGN_OR_RETURN(Layer loaded, LoadLayer(layer, loader));
    weights.layers.push_back(std::move(loaded));
  }
  BATON_ASSIGN_OR_RETURN(weights.final_norm, loader.LoadVector(*stored.final_norm));
  BATON_ASSIGN_OR_RETURN(weights.head, loader.Load(RowsOf({&stored.head}), "head"));
  const std::vector<float> angles = Angles(config);
  weights.sines_at = angles.size() / 2;
  BATON_ASSIGN_OR_RETURN(weights.angles, loader.Keep(BytesOf(angles), "rotary angles"));
  weights.bytes = loader.bytes();
  BATON_RETURN_IF_ERROR(ring->Finish());
  return weights;
}

std::string FormatNames(const checkpoint::ModelWeights& stored) {
  static constexpr const char* kNames[] = {"bf16", "w8-g32", "w4-g32", "w4a-g32"};
  std::set<std::string> names;
  const auto add = [&](const LinearView& view) {
    names.insert(kNames[static_cast<size_t>(dev::FormatOf(TypeOf(view)))]);
    if (const std::string name = ConversionName(view); !name.empty()) names.insert(name);
  };
  add(stored.head);
  for (const checkpoint::LayerWeights& layer : stored.layers) {
    for (const LinearView* view : {&layer.q, &layer.k, &layer.v, &layer.attention_out, &layer.gate,
                                   &layer.up, &layer.down}) {
      add(*view);
    }
  }
  return absl::StrJoin(names, ",");
}

}  // namespace baton::model::gpu
