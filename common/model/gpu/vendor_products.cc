// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/vendor_products.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::model::gpu {
namespace {

size_t ValueCount(const Matrix& matrix) { return size_t{matrix.outputs} * matrix.inputs; }

}  // namespace

absl::StatusOr<std::unique_ptr<VendorProducts>> VendorProducts::Open(const Device& device,
                                                                     const Weights& weights) {
  const char* library = nullptr;
  if (const char* problem = device.table().open_gemm(&library)) {
    return absl::UnavailableError(
        absl::StrCat("--deterministic=false needs the GPU's matrix library (", problem,
                     "); with --deterministic prompts are computed without it"));
  }
  Sizes sizes;
  for (const Layer& layer : weights.layers) {
    for (const Matrix& part : layer.qkv) sizes.weights = std::max(sizes.weights, ValueCount(part));
    for (const Matrix* matrix : {&layer.attention_out, &layer.gate_up, &layer.down}) {
      sizes.weights = std::max(sizes.weights, ValueCount(*matrix));
    }
    sizes.swiglu = layer.gate_up.outputs;
    sizes.context = layer.attention_out.inputs;
  }
  BATON_ASSIGN_OR_RETURN(Buffer scratch, device.Allocate(sizes.weights * sizeof(uint16_t),
                                                         "a layer's largest matrix as bf16"));
  return std::unique_ptr<VendorProducts>(
      new VendorProducts(device, library, sizes, std::move(scratch)));
}

uint64_t VendorProducts::BytesFor(const checkpoint::ModelConfig& config, uint32_t tokens) {
  const uint64_t context = uint64_t{config.heads} * config.head_dim;
  const uint64_t swiglu = uint64_t{2} * config.ffn;
  const uint64_t qkv = context + uint64_t{2} * config.kv_heads * config.head_dim;
  return std::max(swiglu, qkv) * config.hidden * sizeof(uint16_t) +
         tokens * (swiglu * sizeof(float) + context * sizeof(uint16_t));
}

absl::Status VendorProducts::Prepare(uint32_t rows) {
  const std::string purpose = absl::StrCat("a step of ", rows, " tokens");
  const std::pair<Buffer*, size_t> buffers[] = {
      {&products_, size_t{rows} * sizes_.swiglu * sizeof(float)},
      {&plain_, size_t{rows} * sizes_.context * sizeof(uint16_t)}};
  for (const auto& [buffer, bytes] : buffers) {
    if (buffer->bytes() >= bytes) continue;
    *buffer = Buffer();
    BATON_ASSIGN_OR_RETURN(*buffer, device_.Allocate(bytes, purpose));
  }
  return absl::OkStatus();
}

void VendorProducts::Multiply(const Matrix& matrix, dev::Epilogue epilogue, const void* in,
                              void* out, uint32_t stride, uint32_t rows) {
  const dev::DeviceTable& table = device_.table();
  const dev::Stream stream = device_.stream();
  table.unpack_weights(
      {matrix.format, matrix.data.data(), weights_.data(), matrix.outputs, matrix.inputs}, stream);
  const bool swiglu = epilogue == dev::Epilogue::kSwiGlu;
  const float* bias = matrix.bias.bytes() > 0 ? matrix.bias.as<float>() : nullptr;
  table.gemm({weights_.data(), in, bias, swiglu ? products_.as<float>() : static_cast<float*>(out),
              swiglu ? matrix.outputs : stride, rows, matrix.outputs, matrix.inputs,
              epilogue == dev::Epilogue::kAdd},
             stream);
  if (swiglu) table.swiglu({products_.as<float>(), out, rows, matrix.outputs / 2}, stream);
}

const void* VendorProducts::Plain(const void* activations, uint32_t rows, uint32_t inputs) {
  device_.table().plain_rows({activations, plain_.data(), rows, inputs}, device_.stream());
  return plain_.data();
}

}  // namespace baton::model::gpu
