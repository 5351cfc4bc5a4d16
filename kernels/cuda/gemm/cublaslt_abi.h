// SPDX-License-Identifier: Apache-2.0
// Types and numbers that cuBLASLt's functions take, so that no header of it is
// needed: ours, with the values of CUDA 12 and 13
// (tests/kernels/cuda/cublaslt_abi_test.cc compares them where cublasLt.h is
// installed).
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::gpu {

using LtHandle = void*;
using LtDescription = void*;  // of a product
using LtLayout = void*;       // of a matrix
using LtPreference = void*;

inline constexpr int kLtSuccess = 0;                // cublasStatus_t; others are errors
inline constexpr int kLtFloat32 = 0, kLtBf16 = 14;  // cudaDataType_t
inline constexpr int kLtComputeFloat32 = 68;        // cublasComputeType_t
inline constexpr int kLtTransposed = 1;             // cublasOperation_t
// cublasLtMatmulDescAttributes_t
inline constexpr int kLtTransposeA = 3, kLtEpilogue = 7, kLtBiasPointer = 8;
inline constexpr uint32_t kLtEpilogueBias = 4;  // cublasLtEpilogue_t
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kLtWorkspaceBytes = 1, kLtReductionMask = 3, kLtAlignmentA = 5;
inline constexpr uint32_t kLtNoReduction = 0;  // cublasLtReductionScheme_t: no split of the sum

struct LtAlgorithm {
  uint64_t data[8];  // NOLINT(modernize-avoid-c-arrays): as the library has it
};

struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;  // kLtSuccess: the rest holds
  float waves;
  int reserved[4];  // NOLINT(modernize-avoid-c-arrays)
};

}  // namespace baton::gpu
