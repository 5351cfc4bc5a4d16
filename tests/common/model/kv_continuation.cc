// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/kv_continuation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/kv/convert/layer_converter.h"

namespace baton::model {

std::vector<float> Continue(ModelRunner& prefill, ModelRunner& decode,
                            std::span<const TokenId> prompt, std::span<const TokenId> steps) {
  const auto length = static_cast<uint32_t>(prompt.size());
  TestSequence from = prefill.NewSequence(length, 1);
  TestSequence to = decode.NewSequence(length + static_cast<uint32_t>(steps.size()), 2);
  prefill.Feed(from, prompt, 128, LogitRows::kNone);
  const auto converter =
      kv::LayerConverter::Create(prefill.arena().layout(), decode.arena().layout());
  EXPECT_TRUE(converter.ok()) << converter.status();
  for (size_t b = 0; b < from.blocks.size(); ++b) {
    for (uint32_t layer = 0; layer < prefill.arena().layout().layers; ++layer) {
      converter->Convert(prefill.arena().Layer(from.blocks[b], layer),
                         decode.arena().Layer(to.blocks[b], layer));
    }
  }
  to.length = length;
  const auto logits = decode.Feed(to, steps, 1, LogitRows::kAll);
  prefill.Reset();
  decode.Reset();
  return logits;
}

double MeanKl(std::span<const float> p_logits, std::span<const float> q_logits, uint32_t width) {
  const auto log_sum = [](std::span<const float> row) {
    const float max = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (float x : row) sum += std::exp(static_cast<double>(x) - max);
    return max + std::log(sum);
  };
  double total = 0;
  for (size_t at = 0; at < p_logits.size(); at += width) {
    const auto p = p_logits.subspan(at, width), q = q_logits.subspan(at, width);
    const double p_sum = log_sum(p), q_sum = log_sum(q);
    for (uint32_t i = 0; i < width; ++i) {
      const double log_p = p[i] - p_sum;
      total += std::exp(log_p) * (log_p - (q[i] - q_sum));
    }
  }
  return total / static_cast<double>(p_logits.size() / width);
}

}  // namespace baton::model
