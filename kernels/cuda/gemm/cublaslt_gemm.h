// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt, on one device and in one stream. Part of the plugins: it
// knows nothing but the C++ library.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "kernels/cuda/api/gemm.h"
#include "kernels/cuda/gemm/cublaslt_table.h"

namespace baton::gpu {

// What of a product decides how the library computes it.
struct GemmShape {
  uint32_t rows, outputs, inputs, stride;
  bool bias, add;
  auto operator<=>(const GemmShape&) const = default;
};

// The algorithm of a shape is the first that the library's heuristic names, and is
// kept: no timing chooses, so that a process that starts anew computes the same
// bits. None splits a sum, so none needs a second pass. Thread safety: none.
class CublasLtGemm final {
 public:
  // `workspace`: of the device, kWorkspaceBytes, outlives this. Null: `problem`
  // says why.
  static std::unique_ptr<CublasLtGemm> Open(void* workspace, std::string* problem);
  ~CublasLtGemm();
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  // What NVIDIA advises for sm_90; what is free of it on older ones is not missed.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  const std::string& name() const { return name_; }  // such as "cublaslt-130002"
  // Starts the product; false: `problem` says what the library refused.
  bool Run(const GemmTask& task, void* stream, std::string* problem);
  size_t plans() const { return plans_.size(); }

 private:
  // The library's descriptions of a shape, and how it is computed.
  struct Plan {
    LtDescription description = nullptr;
    LtLayout weights = nullptr, rows = nullptr, out = nullptr;
    LtAlgorithm algorithm{};
  };
  static constexpr size_t kMostPlans = 1024;

  CublasLtGemm(const CublasLtTable& table, LtHandle handle, void* workspace);
  bool MakePlan(const GemmShape& shape, Plan* plan);
  bool Describe(const GemmShape& shape, Plan* plan);
  bool Choose(Plan* plan);
  void Drop(Plan& plan);
  void DropPlans();

  const CublasLtTable table_;
  const LtHandle handle_;
  void* const workspace_;
  const std::string name_;
  std::map<GemmShape, Plan> plans_;
};

}  // namespace baton::gpu
