// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_facts.h"

#include <algorithm>

namespace baton::model {
namespace {

uint64_t Parameters(const checkpoint::ModelWeights& weights) {
  const auto elements = [](const checkpoint::LinearView& view) {
    return view.rows * (view.tensor->shape[1] + (view.bias != nullptr ? 1 : 0));
  };
  const uint64_t hidden = weights.embedding->shape[1];
  uint64_t count = weights.embedding->shape[0] * hidden + hidden;  // with the final norm
  if (weights.head.tensor != weights.embedding) count += elements(weights.head);
  for (const checkpoint::LayerWeights& layer : weights.layers) {
    count += 2 * hidden;
    for (const auto* view : {&layer.q, &layer.k, &layer.v, &layer.attention_out, &layer.gate,
                             &layer.up, &layer.down}) {
      count += elements(*view);
    }
  }
  return count;
}

// Rows of the head beyond the tokenizer's ids are padding. Without a tokenizer,
// or with one of an unknown kind, every id is taken as real.
uint32_t UsableVocabulary(const checkpoint::Checkpoint& checkpoint) {
  const uint32_t rows = checkpoint.config().vocabulary;
  const auto tokenizer = checkpoint.LoadTokenizer();
  if (!tokenizer.ok() || *tokenizer == nullptr) return rows;
  return std::min(rows, (*tokenizer)->size());
}

}  // namespace

ModelInfo FactsOf(const checkpoint::Checkpoint& checkpoint, const checkpoint::ModelWeights& weights,
                  const checkpoint::ModelConfig& config) {
  ModelInfo info;
  info.name = config.name;
  info.architecture = config.architecture;
  info.vocabulary_size = config.vocabulary;
  info.context_tokens = config.context;
  info.usable_vocabulary = UsableVocabulary(checkpoint);
  info.end_tokens = config.end_tokens;
  info.parameters = Parameters(weights);
  return info;
}

}  // namespace baton::model
