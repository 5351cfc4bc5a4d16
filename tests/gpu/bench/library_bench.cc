// SPDX-License-Identifier: Apache-2.0
// The part of kernel_bench.h that is about the vendor's matrix library: the ceiling
// of products, and what rows and weights cost on their way to it.
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/gpu/bench/inputs.h"
#include "tests/gpu/bench/kernel_bench.h"

namespace baton::gpu_bench {

absl::Status KernelBench::Library() {
  const char* name = nullptr;
  if (const char* problem = device_.table().open_gemm(&name)) {
    records_.Write({{"kind", "missing"}, {"what", "products by cuBLASLt"}, {"reason", problem}});
    return absl::OkStatus();
  }
  records_.Write({{"kind", "library"}, {"name", name}});
  const uint32_t rows = shapes_.rows.back();
  BATON_RETURN_IF_ERROR(LibraryProduct(shapes_.qkv(), shapes_.hidden, rows));
  BATON_RETURN_IF_ERROR(LibraryProduct(2 * shapes_.ffn, shapes_.hidden, rows));
  BATON_RETURN_IF_ERROR(LibraryProduct(shapes_.hidden, shapes_.ffn, rows));
  // A cube, where the library is at its best.
  return LibraryProduct(2 * shapes_.hidden, 2 * shapes_.hidden, 4 * rows);
}

absl::Status KernelBench::LibraryProduct(uint32_t outputs, uint32_t inputs, uint32_t rows) {
  BATON_ASSIGN_OR_RETURN(const Buffer weights, Bf16s(device_, size_t{outputs} * inputs));
  BATON_ASSIGN_OR_RETURN(const Buffer x, Bf16s(device_, size_t{rows} * inputs));
  BATON_ASSIGN_OR_RETURN(const Buffer out,
                         device_.Allocate(size_t{4} * rows * outputs, "products"));
  const KernelCase one{"Gemm", absl::StrCat(outputs, " x ", inputs, ", ", rows, " rows"),
                       2.0 * outputs * inputs + 2.0 * rows * inputs + 4.0 * rows * outputs,
                       2.0 * rows * outputs * inputs};
  return Measure(one, [&](int) {
    device_.table().gemm(
        {weights.data(), x.data(), nullptr, out.as<float>(), outputs, rows, outputs, inputs, false},
        device_.stream());
  });
}

absl::Status KernelBench::Conversions() {
  const uint32_t outputs = 2 * shapes_.ffn, inputs = shapes_.hidden, rows = shapes_.rows.back();
  const std::string shape = absl::StrCat(outputs, " x ", inputs);
  BATON_ASSIGN_OR_RETURN(const Buffer plain,
                         device_.Allocate(size_t{2} * outputs * inputs, "plain rows"));
  const std::pair<dev::WeightFormat, const char*> formats[] = {{dev::WeightFormat::kBf16, "bf16"},
                                                               {dev::WeightFormat::kInt8, "int8"},
                                                               {dev::WeightFormat::kInt4, "int4"}};
  for (const auto& [format, name] : formats) {
    BATON_ASSIGN_OR_RETURN(const Buffer packed, PackedWeights(device_, format, outputs, inputs));
    BATON_RETURN_IF_ERROR(
        Measure({absl::StrCat("UnpackWeights ", name), shape,
                 static_cast<double>(packed.bytes()) + static_cast<double>(plain.bytes()), 0},
                [&](int) {
                  device_.table().unpack_weights(
                      {format, packed.data(), plain.data(), outputs, inputs}, device_.stream());
                }));
  }
  BATON_ASSIGN_OR_RETURN(
      const Buffer records,
      device_.Allocate(dev::WeightBytes(dev::WeightFormat::kBf16, outputs, inputs), "records"));
  BATON_RETURN_IF_ERROR(
      Measure({"PackWeights bf16", shape, 2.0 * static_cast<double>(records.bytes()), 0}, [&](int) {
        device_.table().pack_weights({dev::StoredType::kBf16, plain.data(), uint64_t{inputs} * 2,
                                      records.data(), outputs, inputs},
                                     device_.stream());
      }));
  BATON_ASSIGN_OR_RETURN(const Buffer products, Floats(device_, size_t{rows} * outputs));
  BATON_ASSIGN_OR_RETURN(const Buffer gated,
                         device_.Allocate(size_t{2} * rows * shapes_.ffn, "gated"));
  return Measure({"SwiGlu", absl::StrCat(rows, " x ", shapes_.ffn), 10.0 * rows * shapes_.ffn, 0},
                 [&](int) {
                   device_.table().swiglu({products.as<float>(), gated.data(), rows, shapes_.ffn},
                                          device_.stream());
                 });
}

}  // namespace baton::gpu_bench
