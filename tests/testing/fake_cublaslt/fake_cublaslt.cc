// SPDX-License-Identifier: Apache-2.0
// Stands in for libcublasLt.so: products by plain loops, on memory of the host.
// Whoever calls it otherwise than the library allows ends with a sentence, or with
// an error where the library would give one.
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/gemm/cublaslt_abi.h"

namespace {

using baton::gpu::LtAlgorithm;
using baton::gpu::LtHeuristic;

constexpr int kInvalid = 7;  // CUBLAS_STATUS_INVALID_VALUE

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t stride;
};
struct Description {
  int transposed = 0;
  uint32_t epilogue = 1;
  const float* bias = nullptr;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reduction = 7, alignment[4] = {256, 256, 256, 256};
};

int handles = 0, live = 0, heuristics = 0;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "fake cuBLASLt: %s\n", what);
  std::abort();
}

template <typename T>
T ValueOf(const void* value, size_t bytes) {
  if (bytes != sizeof(T)) Die("an attribute has another size");
  return *static_cast<const T*>(value);
}

float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// What the heuristic answers is good for its sizes alone.
LtAlgorithm AlgorithmOf(const Layout& a, const Layout& b, const Layout& d) {
  return {{a.rows, a.columns, b.columns, static_cast<uint64_t>(d.stride), 0xb10c, 0, 0, 0}};
}

bool Aligned(const void* pointer, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

extern "C" {

// For tests: heuristics asked for, objects that were not destroyed.
int fake_cublaslt_heuristics() { return heuristics; }
int fake_cublaslt_live() { return live + handles; }

size_t cublasLtGetVersion() { return 130000; }
int cublasLtCreate(void** handle) {
  ++handles;
  *handle = &handles;
  return 0;
}
int cublasLtDestroy(void* handle) {
  if (handle != &handles) Die("no handle");
  --handles;
  return 0;
}

int cublasLtMatmulDescCreate(void** description, int compute, int scale) {
  if (compute != baton::gpu::kLtComputeFloat32 || scale != baton::gpu::kLtFloat32) return kInvalid;
  ++live;
  *description = new Description;
  return 0;
}
int cublasLtMatmulDescDestroy(void* description) {
  --live;
  delete static_cast<Description*>(description);
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value,
                                   size_t bytes) {
  auto& own = *static_cast<Description*>(description);
  switch (attribute) {
    case baton::gpu::kLtTransposeA:
      own.transposed = ValueOf<int>(value, bytes);
      return 0;
    case baton::gpu::kLtEpilogue:
      own.epilogue = ValueOf<uint32_t>(value, bytes);
      return 0;
    case baton::gpu::kLtBiasPointer:
      own.bias = ValueOf<const float*>(value, bytes);
      return 0;
    default:
      return kInvalid;
  }
}

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return kInvalid;
  ++live;
  *layout = new Layout{type, rows, columns, stride};
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  --live;
  delete static_cast<Layout*>(layout);
  return 0;
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  ++live;
  *preference = new Preference;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  --live;
  delete static_cast<Preference*>(preference);
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value,
                                         size_t bytes) {
  auto& own = *static_cast<Preference*>(preference);
  if (attribute == baton::gpu::kLtWorkspaceBytes) {
    own.workspace = ValueOf<uint64_t>(value, bytes);
  } else if (attribute == baton::gpu::kLtReductionMask) {
    own.reduction = ValueOf<uint32_t>(value, bytes);
  } else if (attribute >= baton::gpu::kLtAlignmentA && attribute < baton::gpu::kLtAlignmentA + 4) {
    own.alignment[attribute - baton::gpu::kLtAlignmentA] = ValueOf<uint32_t>(value, bytes);
  } else {
    return kInvalid;
  }
  return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void* /*handle*/, void* description, void* a, void* b, void* c,
                                   void* d, void* preference, int wanted, LtHeuristic* found,
                                   int* count) {
  const auto& own = *static_cast<Preference*>(preference);
  const auto &left = *static_cast<Layout*>(a), &right = *static_cast<Layout*>(b);
  const auto& out = *static_cast<Layout*>(d);
  if (wanted < 1 || own.workspace == 0 || own.reduction != 0 || c == nullptr) return kInvalid;
  if (static_cast<Description*>(description)->transposed != 1) return kInvalid;
  if (left.type != 14 || right.type != 14 || out.type != 0) return kInvalid;
  if (left.rows != right.rows || out.rows != left.columns || out.columns != right.columns) {
    return kInvalid;
  }
  for (const uint32_t alignment : own.alignment) {
    if (alignment > 16) return kInvalid;  // more than Baton's pointers have
  }
  ++heuristics;
  *found = {AlgorithmOf(left, right, out), 0, 0, 1.0f, {}};
  *count = 1;
  return 0;
}

int cublasLtMatmul(void* handle, void* description, const void* alpha, const void* a,
                   void* a_layout, const void* b, void* b_layout, const void* beta, const void* c,
                   void* c_layout, void* d, void* d_layout, const LtAlgorithm* algorithm,
                   void* workspace, size_t workspace_bytes, void* /*stream*/) {
  const auto& own = *static_cast<Description*>(description);
  const auto &left = *static_cast<Layout*>(a_layout), &right = *static_cast<Layout*>(b_layout);
  const auto& out = *static_cast<Layout*>(d_layout);
  if (handle != &handles || c != d || c_layout != d_layout) return kInvalid;
  if (workspace == nullptr || workspace_bytes == 0) return kInvalid;
  if (!Aligned(a, 16) || !Aligned(b, 16) || !Aligned(d, 16)) return kInvalid;
  const LtAlgorithm expected = AlgorithmOf(left, right, out);
  for (int i = 0; i < 8; ++i) {
    if (algorithm->data[i] != expected.data[i]) Die("the algorithm is of another product");
  }
  if ((own.epilogue == baton::gpu::kLtEpilogueBias) != (own.bias != nullptr)) return kInvalid;
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  const auto *weights = static_cast<const uint16_t*>(a), *rows = static_cast<const uint16_t*>(b);
  auto* results = static_cast<float*>(d);
  for (uint64_t row = 0; row < out.columns; ++row) {
    for (uint64_t output = 0; output < out.rows; ++output) {
      const uint16_t* weight = weights + output * static_cast<uint64_t>(left.stride);
      const uint16_t* x = rows + row * static_cast<uint64_t>(right.stride);
      float sum = 0;
      for (uint64_t i = 0; i < left.rows; ++i) sum += FromBf16(weight[i]) * FromBf16(x[i]);
      float& at = results[row * static_cast<uint64_t>(out.stride) + output];
      const float before = keep == 0 ? 0 : keep * at;
      at = scale * sum + before + (own.bias == nullptr ? 0 : own.bias[output]);
    }
  }
  return 0;
}

}  // extern "C"
