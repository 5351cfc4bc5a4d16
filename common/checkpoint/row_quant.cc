// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/row_quant.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "common/base/block_quant.h"
#include "common/base/status_macros.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kWeight = ".weight", kScale = ".weight_scale";

absl::Status Join(uint32_t bits, TensorView& matrix, const TensorView& scale) {
  const auto error = [](const TensorView& tensor, std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", tensor.name, "\" ", std::string(what)));
  };
  if (matrix.type_name != "I8" || matrix.shape.size() != 2) {
    return error(matrix, "has a weight_scale, but is no matrix of type I8");
  }
  if (scale.type != TensorType::kF16 || scale.shape != std::vector<uint64_t>{matrix.shape[0]}) {
    return error(scale, absl::StrCat("must be of type F16 and shape [", matrix.shape[0], "]"));
  }
  if (bits == 4 && __builtin_mul_overflow(matrix.shape[1], uint64_t{2}, &matrix.shape[1])) {
    return error(matrix, "overflows");
  }
  matrix.type = bits == 4 ? TensorType::kI4Row : TensorType::kI8Row;
  matrix.type_name = std::string(TensorTypeName(matrix.type));
  matrix.row_scales = scale.data;
  return absl::OkStatus();
}

}  // namespace

absl::Status JoinRowScales(uint32_t bits, std::vector<TensorView>& tensors) {
  if (bits == 0) return absl::OkStatus();
  std::unordered_map<std::string, TensorView*> by_name;
  for (TensorView& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  const auto matrix_of = [&](const TensorView& scale) -> TensorView* {
    if (!scale.name.ends_with(kScale)) return nullptr;
    const std::string stem = scale.name.substr(0, scale.name.size() - kScale.size());
    const auto matrix = by_name.find(stem + std::string(kWeight));
    return matrix == by_name.end() ? nullptr : matrix->second;
  };
  for (const TensorView& scale : tensors) {
    TensorView* matrix = matrix_of(scale);
    if (matrix != nullptr) BATON_RETURN_IF_ERROR(Join(bits, *matrix, scale));
  }
  // A scale without a matrix stays, and is refused as a tensor of no use.
  std::vector<TensorView> joined;
  for (TensorView& tensor : tensors) {
    if (matrix_of(tensor) == nullptr) joined.push_back(tensor);
  }
  tensors = std::move(joined);
  return absl::OkStatus();
}

void ReadRowCodes(const TensorView& tensor, uint64_t begin, std::span<int8_t> out) {
  const std::byte* data = tensor.data.data();
  if (tensor.type == TensorType::kI8Row) {
    std::memcpy(out.data(), data + begin, out.size());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const auto byte = std::to_integer<uint8_t>(data[(begin + i) / 2]);
    const int nibble = (begin + i) % 2 == 0 ? byte >> 4 : byte & 15;
    out[i] = static_cast<int8_t>((nibble ^ 8) - 8);
  }
}

void DequantizeRowQuant(const TensorView& tensor, uint64_t begin, std::span<float> out) {
  constexpr size_t kPiece = 256;
  int8_t codes[kPiece];
  const uint64_t columns = tensor.shape.back();
  while (!out.empty()) {
    const uint64_t row = begin / columns;
    const size_t count = std::min<uint64_t>({kPiece, out.size(), (row + 1) * columns - begin});
    ReadRowCodes(tensor, begin, {codes, count});
    const float scale = LoadHalfFloat(tensor.row_scales.data() + row * 2);
    for (size_t i = 0; i < count; ++i) out[i] = scale * static_cast<float>(codes[i]);
    out = out.subspan(count);
    begin += count;
  }
}

}  // namespace baton::checkpoint
