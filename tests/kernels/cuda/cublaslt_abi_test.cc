// SPDX-License-Identifier: Apache-2.0
// Our declarations of cuBLASLt against its own header, where that is installed.
#include "kernels/cuda/gemm/cublaslt_abi.h"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/gemm/cublaslt_table.h"

namespace baton::gpu {
namespace {

static_assert(kLtSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kLtFloat32 == CUDA_R_32F && kLtBf16 == CUDA_R_16BF);
static_assert(kLtComputeFloat32 == CUBLAS_COMPUTE_32F);
static_assert(kLtTransposed == CUBLAS_OP_T);
static_assert(kLtTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kLtEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(kLtBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(kLtEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(kLtWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kLtReductionMask == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(kLtAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kLtAlignmentA + 1 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kLtAlignmentA + 2 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kLtAlignmentA + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(kLtNoReduction == CUBLASLT_REDUCTION_SCHEME_NONE);
static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtHeuristic, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

template <typename Function>
constexpr size_t kParameters = 0;
template <typename Result, typename... Parameters>
constexpr size_t kParameters<Result (*)(Parameters...)> = sizeof...(Parameters);
template <typename Ours, typename Theirs>
constexpr bool kAsMany = kParameters<Ours> == kParameters<Theirs>;

TEST(CublasLtAbi, FunctionsTakeAsManyArguments) {
  EXPECT_TRUE((kAsMany<decltype(CublasLtTable::matmul), decltype(&cublasLtMatmul)>));
  EXPECT_TRUE(
      (kAsMany<decltype(CublasLtTable::get_heuristic), decltype(&cublasLtMatmulAlgoGetHeuristic)>));
  EXPECT_TRUE(
      (kAsMany<decltype(CublasLtTable::layout_create), decltype(&cublasLtMatrixLayoutCreate)>));
  EXPECT_TRUE(
      (kAsMany<decltype(CublasLtTable::description_create), decltype(&cublasLtMatmulDescCreate)>));
  EXPECT_TRUE((kAsMany<decltype(CublasLtTable::description_set),
                       decltype(&cublasLtMatmulDescSetAttribute)>));
  EXPECT_TRUE((kAsMany<decltype(CublasLtTable::preference_set),
                       decltype(&cublasLtMatmulPreferenceSetAttribute)>));
  EXPECT_TRUE(
      (std::is_same_v<decltype(&cublasLtGetVersion), decltype(CublasLtTable::get_version)>));
}

}  // namespace
}  // namespace baton::gpu
