// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/generic/attention.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/generic/vec.h"
#include "kernels/packing/kv_slices.h"

namespace baton::kernels::generic {
namespace {

// The blocks of a segment as float32 slices.
struct Slices {
  std::array<const float*, kSegmentTokens / kBlockTokens> keys, values;
};

// Widens bf16 and int8 slices into memory of the thread; float32 ones are used in place.
Slices Widen(KvElement element, const SegmentTask& task) {
  Slices slices{};
  thread_local std::vector<float> memory;
  const size_t slice = size_t{kBlockTokens} * task.head_dim;
  if (element != KvElement::kF32) memory.resize(std::max(memory.size(), 2 * task.blocks * slice));
  for (uint32_t b = 0; b < task.blocks; ++b) {
    if (element == KvElement::kF32) {
      slices.keys[b] = reinterpret_cast<const float*>(task.keys[b]);
      slices.values[b] = reinterpret_cast<const float*>(task.values[b]);
      continue;
    }
    float* keys = &memory[2 * b * slice];
    ExpandKeys(element, task.keys[b], task.head_dim, keys);
    ExpandValues(element, task.values[b], task.head_dim, keys + slice);
    slices.keys[b] = keys;
    slices.values[b] = keys + slice;
  }
  return slices;
}

// Scores of one row against one block, sums in the order of dimensions.
void ScoreBlock(const float* query, const float* keys, uint32_t head_dim, float* scores) {
  Vec sum[kBlockTokens / kLanes] = {};
  for (uint32_t d = 0; d < head_dim; ++d) {
    const Vec q = Splat(query[d]);
    for (uint32_t i = 0; i < kBlockTokens / kLanes; ++i) {
      sum[i] += q * Load(keys + size_t{d} * kBlockTokens + i * kLanes);
    }
  }
  for (uint32_t i = 0; i < kBlockTokens / kLanes; ++i) Store(scores + i * kLanes, sum[i]);
}

// Scores become weights 2^(score - max), zero from `seen` on; returns their sum.
float Weigh(float* scores, uint32_t seen, uint32_t tokens, float max) {
  Vec sum = {};
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    Vec weight = Exp2(Load(scores + t) - Splat(max));
    for (uint32_t i = 0; i < kLanes; ++i) weight[i] = t + i < seen ? weight[i] : 0.0f;
    sum += weight;
    Store(scores + t, weight);
  }
  return Sum(sum);
}

// out[0, 16) = sum over tokens of weight * V, in order.
void WeighValues(const SegmentTask& task, const Slices& slices, const float* weights, uint32_t dim,
                 float* out) {
  Vec sum[4] = {};
  for (uint32_t b = 0; b < task.blocks; ++b) {
    for (uint32_t t = 0; t < kBlockTokens; ++t) {
      const Vec weight = Splat(weights[b * kBlockTokens + t]);
      const float* values = slices.values[b] + size_t{t} * task.head_dim + dim;
      for (uint32_t i = 0; i < 4; ++i) sum[i] += weight * Load(values + i * kLanes);
    }
  }
  for (uint32_t i = 0; i < 4; ++i) Store(out + i * kLanes, sum[i]);
}

void AttendRow(const SegmentTask& task, const Slices& slices, uint32_t row) {
  const uint32_t tokens = task.blocks * kBlockTokens;
  float* out = task.out + size_t{row} * task.head_dim;
  if (task.positions[row] < task.first_token) {
    task.max[row] = kNoScore;
    task.sum[row] = 0;
    std::fill_n(out, task.head_dim, 0.0f);
    return;
  }
  const uint32_t seen = std::min(task.positions[row] - task.first_token + 1, tokens);
  alignas(64) float scores[kSegmentTokens];
  for (uint32_t b = 0; b < task.blocks; ++b) {
    ScoreBlock(task.queries + size_t{row} * task.head_dim, slices.keys[b], task.head_dim,
               scores + b * kBlockTokens);
  }
  float max = kNoScore;
  for (uint32_t t = 0; t < seen; ++t) max = std::max(max, scores[t]);
  task.max[row] = max;
  task.sum[row] = Weigh(scores, seen, tokens, max);
  for (uint32_t d = 0; d < task.head_dim; d += 4 * kLanes) {
    WeighValues(task, slices, scores, d, out + d);
  }
}

template <typename SlicesFormat>
class GenericAttention final : public SlicesFormat {
 public:
  explicit GenericAttention(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  void Attend(const SegmentTask& task) const override {
    const Slices slices = Widen(this->element(), task);
    for (uint32_t row = 0; row < task.rows; ++row) AttendRow(task, slices, row);
  }

 private:
  const std::string_view name_;
};

}  // namespace

const AttentionFormat& Attention(KvElement element) {
  static const GenericAttention<F32Slices> f32("generic/attention-f32/1");
  static const GenericAttention<Bf16Slices> bf16("generic/attention-bf16/1");
  static const GenericAttention<Int8Slices> int8("generic/attention-int8/1");
  if (element == KvElement::kInt8) return int8;
  if (element == KvElement::kF32) return f32;
  return bf16;
}

void MergeSegment(uint32_t head_dim, float segment_max, float segment_sum, const float* segment_out,
                  float* total_max, float* total_sum, float* total_out) {
  const float max = std::max(*total_max, segment_max);
  const Vec keep = Exp2(Splat(*total_max - max)), add = Exp2(Splat(segment_max - max));
  *total_max = max;
  *total_sum = *total_sum * keep[0] + segment_sum * add[0];
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    Store(total_out + d, Load(total_out + d) * keep + Load(segment_out + d) * add);
  }
}

}  // namespace baton::kernels::generic
