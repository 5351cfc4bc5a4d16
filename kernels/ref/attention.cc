// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/packing/kv_slices.h"

namespace baton::kernels::ref {
namespace {

// K and V of a segment as float32, block after block.
struct Expanded {
  std::vector<float> keys, values;
};

Expanded Expand(KvElement element, const SegmentTask& task) {
  const size_t slice = size_t{kBlockTokens} * task.head_dim;
  Expanded expanded{std::vector<float>(task.blocks * slice),
                    std::vector<float>(task.blocks * slice)};
  for (uint32_t b = 0; b < task.blocks; ++b) {
    ExpandKeys(element, task.keys[b], task.head_dim, &expanded.keys[b * slice]);
    ExpandValues(element, task.values[b], task.head_dim, &expanded.values[b * slice]);
  }
  return expanded;
}

// Score of every token of the segment that the row sees.
std::vector<double> Scores(const SegmentTask& task, const Expanded& kv, uint32_t row) {
  const uint32_t position = task.positions[row];
  const uint32_t seen = position < task.first_token
                            ? 0
                            : std::min(position - task.first_token + 1, task.blocks * kBlockTokens);
  const float* query = task.queries + size_t{row} * task.head_dim;
  std::vector<double> scores(seen);
  for (uint32_t t = 0; t < seen; ++t) {
    const float* keys = &kv.keys[size_t{t / kBlockTokens} * kBlockTokens * task.head_dim];
    for (uint32_t d = 0; d < task.head_dim; ++d) {
      scores[t] +=
          static_cast<double>(query[d]) * keys[size_t{d} * kBlockTokens + t % kBlockTokens];
    }
  }
  return scores;
}

void AttendRow(const SegmentTask& task, const Expanded& kv, uint32_t row) {
  std::vector<double> scores = Scores(task, kv, row);
  double max = kNoScore, sum = 0;
  for (double score : scores) max = std::max(max, score);
  std::vector<double> out(task.head_dim);
  for (uint32_t t = 0; t < scores.size(); ++t) {
    // Relative to the maximum as it is returned, rounded to float32.
    const double weight = std::exp2(scores[t] - static_cast<float>(max));
    sum += weight;
    for (uint32_t d = 0; d < task.head_dim; ++d) {
      out[d] += weight * kv.values[size_t{t} * task.head_dim + d];
    }
  }
  task.max[row] = static_cast<float>(max);
  task.sum[row] = static_cast<float>(sum);
  std::transform(out.begin(), out.end(), task.out + size_t{row} * task.head_dim,
                 [](double value) { return static_cast<float>(value); });
}

template <typename Slices>
class RefAttention final : public Slices {
 public:
  explicit RefAttention(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  void Attend(const SegmentTask& task) const override {
    const Expanded kv = Expand(this->element(), task);
    for (uint32_t row = 0; row < task.rows; ++row) AttendRow(task, kv, row);
  }

 private:
  const std::string_view name_;
};

}  // namespace

const AttentionFormat& Attention(KvElement element) {
  static const RefAttention<F32Slices> f32("ref/attention-f32/1");
  static const RefAttention<Bf16Slices> bf16("ref/attention-bf16/1");
  static const RefAttention<Int8Slices> int8("ref/attention-int8/1");
  if (element == KvElement::kInt8) return int8;
  if (element == KvElement::kF32) return f32;
  return bf16;
}

void MergeSegment(uint32_t head_dim, float segment_max, float segment_sum, const float* segment_out,
                  float* total_max, float* total_sum, float* total_out) {
  const float max = std::max(*total_max, segment_max);
  const double keep = std::exp2(static_cast<double>(*total_max) - max);
  const double add = std::exp2(static_cast<double>(segment_max) - max);
  *total_max = max;
  *total_sum = static_cast<float>(*total_sum * keep + segment_sum * add);
  for (uint32_t d = 0; d < head_dim; ++d) {
    total_out[d] = static_cast<float>(total_out[d] * keep + segment_out[d] * add);
  }
}

}  // namespace baton::kernels::ref
