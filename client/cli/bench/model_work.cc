// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/model_work.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/model/convert_rows.h"
#include "common/model/packed_matrix.h"

namespace baton::cli {
namespace {

// Adds `view` to the matrices of its shape and format, or as new ones.
void AddMatrix(const char* name, const checkpoint::LinearView& view, bool head,
               const model::ComputePlan& plan, std::vector<MatrixWork>& matrices) {
  MatrixWork work;
  work.name = name;
  work.example = &view;
  work.format = &plan.backend->Linear(model::ToWeightType(model::PackedType(view)), plan.precision);
  work.outputs = static_cast<uint32_t>(view.rows);
  work.inputs = static_cast<uint32_t>(view.tensor->shape[1]);
  work.count = 1;
  work.head = head;
  work.bytes = model::PackedMatrix::PackedBytes(view, *plan.backend, plan.precision);
  for (MatrixWork& known : matrices) {
    if (known.format != work.format || known.outputs != work.outputs ||
        known.inputs != work.inputs || known.head != head) {
      continue;
    }
    ++known.count;
    const std::vector<std::string> names = absl::StrSplit(known.name, ", ");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      absl::StrAppend(&known.name, ", ", name);
    }
    return;
  }
  matrices.push_back(std::move(work));
}

// Seconds for `operations` at `peak`; endless where there is no peak, so that
// no share of nothing is told.
double SecondsAt(double operations, double peak) {
  if (operations == 0) return 0;
  return peak > 0 ? operations / peak : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<MatrixWork> ListMatrices(const checkpoint::ModelWeights& weights,
                                     const model::ComputePlan& plan) {
  std::vector<MatrixWork> matrices;
  for (const checkpoint::LayerWeights& layer : weights.layers) {
    AddMatrix("q", layer.q, false, plan, matrices);
    AddMatrix("k", layer.k, false, plan, matrices);
    AddMatrix("v", layer.v, false, plan, matrices);
    AddMatrix("attention out", layer.attention_out, false, plan, matrices);
    AddMatrix("gate", layer.gate, false, plan, matrices);
    AddMatrix("up", layer.up, false, plan, matrices);
    AddMatrix("down", layer.down, false, plan, matrices);
  }
  AddMatrix("head", weights.head, true, plan, matrices);
  return matrices;
}

StepWork PromptWork(uint32_t tokens, uint32_t chunk) {
  StepWork work;
  work.steps = (tokens + chunk - 1) / chunk;
  work.rows = tokens;
  work.logit_rows = 1;
  work.attended = 0.5 * tokens * (tokens + 1.0);
  // Each chunk reads what the earlier ones have written.
  for (uint32_t begin = 0; begin < tokens; begin += chunk) work.kv_tokens += begin;
  return work;
}

StepWork DecodeWork(uint32_t batch, double context) {
  StepWork work;
  work.rows = work.logit_rows = batch;
  work.attended = batch * context;
  work.kv_tokens = batch * context;
  return work;
}

Roofline RooflineOf(const StepWork& work, const std::vector<MatrixWork>& matrices,
                    const checkpoint::ModelConfig& config, const model::ComputePlan& plan,
                    const std::vector<InstructionPeak>& peaks, double bytes_per_second) {
  Roofline roofline;
  double bytes = 0;
  for (const MatrixWork& matrix : matrices) {
    const double rows = matrix.head ? work.logit_rows : work.rows;
    roofline.compute_seconds +=
        SecondsAt(matrix.count * matrix.operations() * rows, PeakOf(peaks, matrix.format->name()));
    // Logits come with the last of the steps.
    const double readings = matrix.head ? std::min<double>(1, work.logit_rows) : work.steps;
    bytes += readings * static_cast<double>(matrix.count * matrix.bytes);
  }
  // Scores and weighted values: two products of head size per pair and head.
  const double attention = 4.0 * config.head_dim * config.heads * config.layers * work.attended;
  roofline.compute_seconds += SecondsAt(attention, PeakOf(peaks, plan.attention->name()));
  bytes += work.kv_tokens * static_cast<double>(plan.layout.BlockBytes()) / kv::kBlockTokens;
  roofline.read_seconds = bytes / bytes_per_second;
  return roofline;
}

}  // namespace baton::cli
