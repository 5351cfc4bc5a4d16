// SPDX-License-Identifier: Apache-2.0
// The few functions of cuBLASLt that multiply, found at run time: nothing links it.
#pragma once

#include <string>

#include "kernels/cuda/gemm/cublaslt_abi.h"

namespace baton::gpu {

struct CublasLtTable {
  size_t (*get_version)();
  int (*create)(LtHandle* handle);
  int (*destroy)(LtHandle handle);
  int (*description_create)(LtDescription* description, int compute, int scale_type);
  int (*description_destroy)(LtDescription description);
  int (*description_set)(LtDescription description, int attribute, const void* value, size_t bytes);
  int (*layout_create)(LtLayout* layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*layout_destroy)(LtLayout layout);
  int (*preference_create)(LtPreference* preference);
  int (*preference_destroy)(LtPreference preference);
  int (*preference_set)(LtPreference preference, int attribute, const void* value, size_t bytes);
  int (*get_heuristic)(LtHandle handle, LtDescription description, LtLayout a, LtLayout b,
                       LtLayout c, LtLayout d, LtPreference preference, int wanted,
                       LtHeuristic* found, int* count);
  int (*matmul)(LtHandle handle, LtDescription description, const void* alpha, const void* a,
                LtLayout a_layout, const void* b, LtLayout b_layout, const void* beta,
                const void* c, LtLayout c_layout, void* d, LtLayout d_layout,
                const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                void* stream);
};

// The library that BATON_CUBLASLT_LIBRARY names, else libcublasLt.so.13 or .12;
// never closed. False: `problem` says in one sentence what is missing.
bool LoadCublasLt(CublasLtTable* table, std::string* problem);

}  // namespace baton::gpu
