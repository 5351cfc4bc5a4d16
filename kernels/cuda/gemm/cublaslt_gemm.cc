// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm/cublaslt_gemm.h"

namespace baton::gpu {
namespace {

// Of every pointer: a column of q k v begins at any multiple of 16 bytes.
constexpr uint32_t kAlignment = 16;

std::string TextOf(const GemmShape& shape) {
  return std::to_string(shape.rows) + " rows of " + std::to_string(shape.inputs) + " into " +
         std::to_string(shape.outputs);
}

}  // namespace

std::unique_ptr<CublasLtGemm> CublasLtGemm::Open(void* workspace, std::string* problem) {
  CublasLtTable table{};
  if (!LoadCublasLt(&table, problem)) return nullptr;
  LtHandle handle = nullptr;
  if (const int status = table.create(&handle); status != kLtSuccess) {
    *problem = "cublasLtCreate says " + std::to_string(status);
    return nullptr;
  }
  return std::unique_ptr<CublasLtGemm>(new CublasLtGemm(table, handle, workspace));
}

CublasLtGemm::CublasLtGemm(const CublasLtTable& table, LtHandle handle, void* workspace)
    : table_(table),
      handle_(handle),
      workspace_(workspace),
      name_("cublaslt-" + std::to_string(table.get_version())) {}

CublasLtGemm::~CublasLtGemm() {
  DropPlans();
  table_.destroy(handle_);
}

bool CublasLtGemm::Run(const GemmTask& task, void* stream, std::string* problem) {
  const GemmShape shape{task.row_count,  task.outputs,         task.inputs,
                        task.out_stride, task.bias != nullptr, task.add};
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    if (plans_.size() >= kMostPlans) DropPlans();
    Plan made;
    if (!MakePlan(shape, &made)) {
      Drop(made);
      *problem = "cuBLASLt has no product of " + TextOf(shape);
      return false;
    }
    found = plans_.emplace(shape, made).first;
  }
  const Plan& plan = found->second;
  if (task.bias != nullptr && table_.description_set(plan.description, kLtBiasPointer, &task.bias,
                                                     sizeof(task.bias)) != kLtSuccess) {
    *problem = "cuBLASLt takes no bias";
    return false;
  }
  const float alpha = 1, beta = task.add ? 1 : 0;
  const int status = table_.matmul(handle_, plan.description, &alpha, task.weights, plan.weights,
                                   task.rows, plan.rows, &beta, task.out, plan.out, task.out,
                                   plan.out, &plan.algorithm, workspace_, kWorkspaceBytes, stream);
  if (status == kLtSuccess) return true;
  *problem = "cublasLtMatmul of " + TextOf(shape) + " says " + std::to_string(status);
  return false;
}

bool CublasLtGemm::MakePlan(const GemmShape& shape, Plan* plan) {
  return Describe(shape, plan) && Choose(plan);
}

// The library counts by columns: our rows [count, inputs] are its columns, and so
// are the results; the weights [outputs, inputs] it takes transposed.
bool CublasLtGemm::Describe(const GemmShape& shape, Plan* plan) {
  const int transposed = kLtTransposed;
  const uint32_t epilogue = kLtEpilogueBias;
  return table_.description_create(&plan->description, kLtComputeFloat32, kLtFloat32) ==
             kLtSuccess &&
         table_.description_set(plan->description, kLtTransposeA, &transposed,
                                sizeof(transposed)) == kLtSuccess &&
         (!shape.bias || table_.description_set(plan->description, kLtEpilogue, &epilogue,
                                                sizeof(epilogue)) == kLtSuccess) &&
         table_.layout_create(&plan->weights, kLtBf16, shape.inputs, shape.outputs, shape.inputs) ==
             kLtSuccess &&
         table_.layout_create(&plan->rows, kLtBf16, shape.inputs, shape.rows, shape.inputs) ==
             kLtSuccess &&
         table_.layout_create(&plan->out, kLtFloat32, shape.outputs, shape.rows, shape.stride) ==
             kLtSuccess;
}

bool CublasLtGemm::Choose(Plan* plan) {
  LtPreference preference = nullptr;
  if (table_.preference_create(&preference) != kLtSuccess) return false;
  const uint64_t workspace = kWorkspaceBytes;
  const uint32_t reduction = kLtNoReduction;
  bool set = table_.preference_set(preference, kLtWorkspaceBytes, &workspace, sizeof(workspace)) ==
                 kLtSuccess &&
             table_.preference_set(preference, kLtReductionMask, &reduction, sizeof(reduction)) ==
                 kLtSuccess;
  for (int matrix = 0; matrix < 4; ++matrix) {  // A, B, C, D
    set = set && table_.preference_set(preference, kLtAlignmentA + matrix, &kAlignment,
                                       sizeof(kAlignment)) == kLtSuccess;
  }
  LtHeuristic found{};
  int count = 0;
  const bool chosen =
      set &&
      table_.get_heuristic(handle_, plan->description, plan->weights, plan->rows, plan->out,
                           plan->out, preference, 1, &found, &count) == kLtSuccess &&
      count == 1 && found.state == kLtSuccess;
  table_.preference_destroy(preference);
  plan->algorithm = found.algorithm;
  return chosen;
}

void CublasLtGemm::Drop(Plan& plan) {
  for (const LtLayout layout : {plan.weights, plan.rows, plan.out}) {
    if (layout != nullptr) table_.layout_destroy(layout);
  }
  if (plan.description != nullptr) table_.description_destroy(plan.description);
}

void CublasLtGemm::DropPlans() {
  for (auto& plan : plans_) Drop(plan.second);
  plans_.clear();
}

}  // namespace baton::gpu
