// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/gpu_model.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"

namespace baton::model::gpu {
namespace {

constexpr size_t kMostGraphs = 64;

size_t Floats(size_t count) { return count * sizeof(float); }

}  // namespace

GpuModel::GpuModel(std::unique_ptr<Device> device, const checkpoint::ModelConfig& config,
                   Weights weights, std::unique_ptr<VendorProducts> vendor, ModelInfo info,
                   kv::KvLayout layout, uint32_t max_step_tokens)
    : device_(std::move(device)),
      config_(config),
      weights_(std::move(weights)),
      vendor_(std::move(vendor)),
      info_(std::move(info)),
      layout_(std::move(layout)),
      max_step_tokens_(max_step_tokens),
      memory_(weights_.bytes) {
  for (Pending& step : steps_) step.done = device_->table().make_event();
}

GpuModel::~GpuModel() {
  device_->table().bind_thread();
  (void)device_->Finish();
  DropGraphs();
  for (const Pending& step : steps_) device_->table().drop_event(step.done);
}

absl::Status GpuModel::Attach(kv::KvArena& arena) {
  device_->table().bind_thread();
  DropGraphs();
  BATON_ASSIGN_OR_RETURN(
      chosen_, device_->Allocate(GraphRows(max_step_tokens_) * sizeof(uint32_t), "chosen tokens"));
  BATON_ASSIGN_OR_RETURN(blocks_, BlockStore::Create(arena, *device_));
  arena.SetMirror(blocks_.get());
  LookAtMemory();
  return absl::OkStatus();
}

void GpuModel::LookAtMemory() {
  device_->table().bind_thread();
  const uint64_t kv_bytes = blocks_ == nullptr ? 0 : blocks_->bytes();
  memory_.Look(*device_, kv_bytes, step_bytes_ + upload_.room(), absl::Now());
}

void GpuModel::RunStep(const StepPlan& plan, const Arrays& arrays) {
  const auto rows = static_cast<uint32_t>(plan.tokens.size());
  device_->table().embed(
      {weights_.table_type, weights_.embedding.data(), arrays.tokens, arrays.sources,
       chosen_.as<uint32_t>(), x_.as<float>(), rows, config_.hidden, config_.vocabulary},
      device_->stream());
  for (uint32_t layer = 0; layer < config_.layers; ++layer) RunLayer(plan, arrays, rows, layer);
  if (const auto count = static_cast<uint32_t>(plan.logit_rows.size()); count > 0) {
    Norm(weights_.final_norm, arrays.logit_rows, count);
    Multiply(weights_.head, dev::Epilogue::kStore, normed_.data(), logits_.data(),
             config_.vocabulary, count);
  }
}

// Where all tokens are chosen, that is part of the graph; else it comes behind it.
void GpuModel::RunAll(const StepPlan& plan, const SamplePlan& samples, const Arrays& arrays) {
  const size_t chosen = samples.chosen();
  if (!plan.graph) {
    RunStep(plan, arrays);
    return Choose(arrays, chosen);
  }
  const bool all = samples.rows.size() == plan.tokens.size();
  ReplayStep(plan, arrays, all);
  if (!all) Choose(arrays, chosen);
}

void GpuModel::Choose(const Arrays& arrays, size_t rows) {
  if (rows == 0) return;
  dev::SampleTask task{};
  task.rows = arrays.samples;
  task.history = reinterpret_cast<const dev::TokenCount*>(arrays.lists);
  task.biases = reinterpret_cast<const dev::TokenBias*>(arrays.lists);
  task.banned = task.masks = arrays.lists;
  task.logits = logits_.as<float>();
  task.weights = weights_of_tokens_.as<float>();
  task.tokens = chosen_.as<uint32_t>();
  task.row_count = static_cast<uint32_t>(rows);
  task.stride = config_.vocabulary;
  device_->table().sample(task, device_->stream());
}

void GpuModel::ReplayStep(const StepPlan& plan, const Arrays& arrays, bool chooses) {
  const dev::DeviceTable& table = device_->table();
  const auto rows = static_cast<uint32_t>(plan.tokens.size());
  const auto run = [&] {
    RunStep(plan, arrays);
    if (chooses) Choose(arrays, rows);
  };
  const std::tuple key(rows, plan.decode_segments, chooses);
  auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    table.begin_capture(device_->stream());
    run();
    const dev::Graph graph = table.end_capture(device_->stream());
    if (graph == nullptr) return run();
    if (graphs_.size() >= kMostGraphs) DropGraphs();
    found = graphs_.emplace(key, graph).first;
  }
  table.replay(found->second, device_->stream());
}

void GpuModel::DropGraphs() {
  for (const auto& graph : graphs_) device_->table().drop_graph(graph.second);
  graphs_.clear();
}

// Graphs have the addresses of buffers in them, and so have steps that are under way.
absl::Status GpuModel::Grow(Buffer& buffer, size_t bytes, const std::string& purpose) {
  if (buffer.bytes() >= bytes) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(device_->Finish());
  DropGraphs();
  step_bytes_ -= buffer.bytes();
  buffer = Buffer();
  BATON_ASSIGN_OR_RETURN(buffer, device_->Allocate(bytes, purpose));
  step_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status GpuModel::Prepare(const StepPlan& plan, const SamplePlan& samples) {
  const size_t rows = plan.tokens.size();
  const uint32_t heads = config_.heads * config_.head_dim;
  const uint32_t qkv = heads + 2 * config_.kv_heads * config_.head_dim;
  const auto count = static_cast<uint32_t>(rows);
  const size_t parts = plan.decode_rows.size() * config_.heads * plan.decode_segments;
  const std::string purpose = absl::StrFormat("a step of %u tokens", rows);
  const size_t bytes = plan.bytes() + samples.bytes();
  if (upload_.room() < bytes) {
    BATON_RETURN_IF_ERROR(device_->Finish());
    DropGraphs();
  }
  BATON_RETURN_IF_ERROR(upload_.Begin(*device_, bytes));
  const std::pair<Buffer*, size_t> buffers[] = {
      {&x_, Floats(rows * config_.hidden)},
      {&qkv_, Floats(rows * qkv)},
      {&q_, rows * heads * sizeof(uint16_t)},
      {&normed_, dev::ActivationBytes(count, config_.hidden)},
      {&context_, dev::ActivationBytes(count, heads)},
      {&ffn_, dev::ActivationBytes(count, config_.ffn)},
      {&partial_out_, Floats(parts * config_.head_dim)},
      {&partial_sums_, Floats(parts * 2)},
      {&logits_, Floats(plan.logit_rows.size() * config_.vocabulary)},
      {&weights_of_tokens_, Floats(samples.rows.size() * config_.vocabulary)}};
  for (const auto& buffer : buffers) {
    BATON_RETURN_IF_ERROR(Grow(*buffer.first, buffer.second, purpose));
  }
  return ByVendor(plan) ? vendor_->Prepare(count) : absl::OkStatus();
}

// What varies in size among the steps of a graph comes last.
GpuModel::Arrays GpuModel::Upload(const StepPlan& plan, const SamplePlan& samples) {
  std::vector<uint32_t> fresh;
  for (const kv::BlockId block : plan.fresh) fresh.push_back(static_cast<uint32_t>(block));
  Arrays arrays{};
  arrays.tokens = upload_.Put<uint32_t>(plan.tokens);
  arrays.sources = upload_.Put<int32_t>(plan.sources);
  arrays.positions = upload_.Put<int32_t>(plan.positions);
  arrays.row_blocks = upload_.Put<uint32_t>(plan.row_blocks);
  arrays.tables = upload_.Put<uint32_t>(plan.tables);
  arrays.decode_rows = upload_.Put<uint32_t>(plan.decode_rows);
  arrays.decode_positions = upload_.Put<int32_t>(plan.decode_positions);
  arrays.items = upload_.Put<dev::PrefillItem>(plan.items);
  arrays.logit_rows = upload_.Put<uint32_t>(plan.logit_rows);
  arrays.samples = upload_.Put<dev::SampleRow>(samples.rows);
  arrays.lists = upload_.Put<uint32_t>(samples.lists);
  arrays.fresh = upload_.Put<uint32_t>(fresh);
  upload_.Send(*device_);
  return arrays;
}

dev::KvPool GpuModel::PoolOf(uint32_t layer) const {
  return {layout_.type == kv::KvType::kInt8 ? dev::KvElement::kInt8 : dev::KvElement::kBf16,
          blocks_->data(),
          blocks_->block_bytes(),
          layer * layout_.LayerBytes(),
          layout_.kv_heads,
          static_cast<uint32_t>(layout_.SliceBytes()),
          layout_.head_dim};
}

void GpuModel::Norm(const Buffer& weight, const uint32_t* source, uint32_t rows, bool plain) {
  device_->table().rms_norm({x_.as<float>(), weight.as<float>(), source, normed_.data(), rows,
                             config_.hidden, config_.norm_epsilon, plain},
                            device_->stream());
}

void GpuModel::Multiply(const Matrix& matrix, dev::Epilogue epilogue, const void* in, void* out,
                        uint32_t stride, uint32_t rows, bool vendor) {
  if (vendor) return vendor_->Multiply(matrix, epilogue, in, out, stride, rows);
  const float* bias = matrix.bias.bytes() > 0 ? matrix.bias.as<float>() : nullptr;
  device_->table().linear({matrix.format, epilogue, matrix.data.data(), in, bias, out, stride, rows,
                           matrix.outputs, matrix.inputs},
                          device_->stream());
}

void GpuModel::RunLayer(const StepPlan& plan, const Arrays& arrays, uint32_t rows, uint32_t layer) {
  const Layer& weights = weights_.layers[layer];
  const uint32_t width = (config_.heads + 2 * config_.kv_heads) * config_.head_dim;
  const dev::KvPool pool = PoolOf(layer);
  const bool vendor = ByVendor(plan);
  Norm(weights.attention_norm, nullptr, rows, vendor);
  for (const Matrix& part : weights.qkv) {
    Multiply(part, dev::Epilogue::kStore, normed_.data(), qkv_.as<float>() + part.column, width,
             rows, vendor);
  }
  dev::QkvTask qkv{};
  qkv.qkv = qkv_.as<float>();
  qkv.angles = weights_.angles.as<float>();
  qkv.sines_at = weights_.sines_at;
  qkv.positions = arrays.positions;
  qkv.blocks = arrays.row_blocks;
  qkv.q = q_.data();
  qkv.pool = pool;
  qkv.pairs = config_.rope_style == checkpoint::RopeStyle::kHalves ? dev::RopePairs::kHalves
                                                                   : dev::RopePairs::kAdjacent;
  qkv.rows = rows;
  qkv.heads = config_.heads;
  qkv.rotary_dims = config_.rotary_dims;
  qkv.scale = static_cast<float>(std::numbers::log2e / std::sqrt(config_.head_dim));
  device_->table().rope_append(qkv, device_->stream());
  Attend(plan, arrays, rows, pool);
  const void* context = context_.data();
  if (vendor) context = vendor_->Plain(context, rows, weights.attention_out.inputs);
  Multiply(weights.attention_out, dev::Epilogue::kAdd, context, x_.data(), config_.hidden, rows,
           vendor);
  Norm(weights.ffn_norm, nullptr, rows, vendor);
  Multiply(weights.gate_up, dev::Epilogue::kSwiGlu, normed_.data(), ffn_.data(), 0, rows, vendor);
  Multiply(weights.down, dev::Epilogue::kAdd, ffn_.data(), x_.data(), config_.hidden, rows, vendor);
}

void GpuModel::Attend(const StepPlan& plan, const Arrays& arrays, uint32_t rows,
                      const dev::KvPool& pool) {
  const dev::DeviceTable& table = device_->table();
  if (const auto sequences = static_cast<uint32_t>(plan.decode_rows.size()); sequences > 0) {
    table.decode_attention(
        {pool, q_.data(), arrays.decode_rows, arrays.decode_positions, arrays.tables,
         partial_out_.as<float>(), partial_sums_.as<float>(), context_.data(), sequences, rows,
         config_.heads, plan.table_stride, plan.decode_segments},
        device_->stream());
  }
  if (const auto items = static_cast<uint32_t>(plan.items.size()); items > 0) {
    table.prefill_attention({pool, q_.data(), arrays.items, arrays.tables, context_.data(), items,
                             rows, config_.heads, plan.table_stride},
                            device_->stream());
  }
}

}  // namespace baton::model::gpu
