// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm/cublaslt_table.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <vector>

namespace baton::gpu {
namespace {

// The first whose attributes and structs are ours.
constexpr size_t kOldestCublasLt = 120000;

std::vector<std::string> Candidates() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets any.
  const char* const chosen = getenv("BATON_CUBLASLT_LIBRARY");
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  return {"libcublasLt.so.13", "libcublasLt.so.12"};
}

void* OpenFirst(std::string* problem) {
  for (const std::string& name : Candidates()) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps it per thread.
    const char* const text = dlerror();
    if (problem->empty()) *problem = text == nullptr ? "unknown" : text;
  }
  return nullptr;
}

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool FindAll(void* from, CublasLtTable& table) {
  return Find(from, "cublasLtGetVersion", table.get_version) &&
         Find(from, "cublasLtCreate", table.create) &&
         Find(from, "cublasLtDestroy", table.destroy) &&
         Find(from, "cublasLtMatmulDescCreate", table.description_create) &&
         Find(from, "cublasLtMatmulDescDestroy", table.description_destroy) &&
         Find(from, "cublasLtMatmulDescSetAttribute", table.description_set) &&
         Find(from, "cublasLtMatrixLayoutCreate", table.layout_create) &&
         Find(from, "cublasLtMatrixLayoutDestroy", table.layout_destroy) &&
         Find(from, "cublasLtMatmulPreferenceCreate", table.preference_create) &&
         Find(from, "cublasLtMatmulPreferenceDestroy", table.preference_destroy) &&
         Find(from, "cublasLtMatmulPreferenceSetAttribute", table.preference_set) &&
         Find(from, "cublasLtMatmulAlgoGetHeuristic", table.get_heuristic) &&
         Find(from, "cublasLtMatmul", table.matmul);
}

}  // namespace

bool LoadCublasLt(CublasLtTable* table, std::string* problem) {
  problem->clear();
  void* const library = OpenFirst(problem);
  if (library == nullptr) return false;
  if (!FindAll(library, *table)) {
    *problem = "the library lacks functions of cuBLASLt";
    return false;
  }
  if (const size_t version = table->get_version(); version < kOldestCublasLt) {
    *problem = "cuBLASLt has version " + std::to_string(version) + ", needed is " +
               std::to_string(kOldestCublasLt);
    return false;
  }
  return true;
}

}  // namespace baton::gpu
