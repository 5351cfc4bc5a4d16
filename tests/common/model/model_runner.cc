// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/model_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/api/backend.h"

namespace baton::model {

namespace {

absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& path, const LoadOptions& options) {
  auto checkpoint = checkpoint::OpenCheckpoint(path);
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadModel(**checkpoint, options);
}

}  // namespace

ModelRunner::ModelRunner(const std::string& path, const LoadOptions& options, uint32_t blocks)
    : ModelRunner(Load(path, options), blocks) {}

ModelRunner::ModelRunner(absl::StatusOr<std::unique_ptr<Model>> model, uint32_t blocks) {
  if (!model.ok()) {
    ADD_FAILURE() << model.status();
    return;
  }
  auto arena = kv::KvArena::Create((*model)->kv_layout(), blocks);
  if (!arena.ok()) {
    ADD_FAILURE() << arena.status();
    return;
  }
  arena_ = std::make_unique<kv::KvArena>(*std::move(arena));
  if (const absl::Status attached = (*model)->Attach(*arena_); !attached.ok()) {
    ADD_FAILURE() << attached;
    return;
  }
  model_ = *std::move(model);
}

TestSequence ModelRunner::NewSequence(uint32_t tokens, unsigned order_seed) {
  if (free_.empty()) {
    for (uint32_t b = 0; b < arena_->blocks(); ++b) free_.push_back(kv::BlockId{b});
    std::shuffle(free_.begin(), free_.end(), std::mt19937(order_seed));
  }
  const uint32_t count = kv::BlocksForTokens(tokens);
  TestSequence sequence;
  if (count > free_.size()) {
    ADD_FAILURE() << "the arena of the test is too small";
    return sequence;
  }
  sequence.blocks.assign(free_.end() - count, free_.end());
  free_.resize(free_.size() - count);
  return sequence;
}

void ModelRunner::Fill(int value) {
  for (uint32_t b = 0; b < arena_->blocks(); ++b) {
    for (uint32_t layer = 0; layer < arena_->layout().layers; ++layer) {
      const auto span = arena_->LayerSpan(kv::BlockId{b}, layer);
      std::memset(span.data(), value, span.size());
    }
  }
}

std::vector<float> ModelRunner::Feed(TestSequence& sequence, std::span<const TokenId> tokens,
                                     uint32_t chunk, LogitRows rows) {
  std::vector<float> all;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t count = std::min<size_t>(chunk, tokens.size() - at);
    const bool last = at + count == tokens.size();
    Slice slice{tokens.subspan(at, count), sequence.length, sequence.blocks, rows};
    if (rows == LogitRows::kLast && !last) slice.logit_rows = LogitRows::kNone;
    const size_t wanted = slice.logit_rows == LogitRows::kAll    ? count
                          : slice.logit_rows == LogitRows::kLast ? 1
                                                                 : 0;
    const size_t before = all.size();
    all.resize(before + wanted * vocabulary());
    const absl::Status status =
        model_->Forward({&slice, 1}, *arena_, std::span(all).subspan(before), nullptr);
    EXPECT_TRUE(status.ok()) << status;
    sequence.length += static_cast<uint32_t>(count);
  }
  return all;
}

std::vector<TokenId> ModelRunner::Greedy(std::span<const TokenId> prompt, uint32_t count) {
  TestSequence sequence = NewSequence(static_cast<uint32_t>(prompt.size()) + count);
  std::vector<float> logits = Feed(sequence, prompt, model_->max_step_tokens(), LogitRows::kLast);
  std::vector<TokenId> output = {Argmax(logits)};
  while (output.size() < count) {
    logits = Feed(sequence, {&output.back(), 1}, 1, LogitRows::kLast);
    output.push_back(Argmax(logits));
  }
  Reset();
  return output;
}

std::vector<float> ModelRunner::KvRow(const TestSequence& sequence, uint32_t layer,
                                      uint32_t position, uint32_t head, bool values,
                                      uint32_t head_dim) {
  const kv::KvLayout& layout = arena_->layout();
  EXPECT_EQ(layout.type, kv::KvType::kF32);
  const kv::BlockId block = sequence.blocks[position / kv::kBlockTokens];
  const auto* slice = reinterpret_cast<const float*>(
      arena_->Layer(block, layer) + (head + (values ? layout.kv_heads : 0)) * layout.SliceBytes());
  const uint32_t slot = position % kv::kBlockTokens;
  std::vector<float> row(head_dim);
  for (uint32_t d = 0; d < head_dim; ++d) {
    row[d] = values ? slice[slot * layout.head_dim + d] : slice[d * kv::kBlockTokens + slot];
  }
  return row;
}

TokenId Argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<TokenId> RandomTokens(uint32_t count, uint32_t vocabulary, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(generator() % vocabulary);
  return tokens;
}

LoadOptions Options(const std::string& isa, Precision precision, uint32_t threads) {
  LoadOptions options;
  options.isa = isa;
  options.precision = precision;
  options.threads = threads;
  return options;
}

std::vector<std::string> AvailableIsas() {
  std::vector<std::string> names;
  for (const kernels::Backend* backend : kernels::Backends()) {
    if (backend->available()) names.emplace_back(backend->name());
  }
  return names;
}

}  // namespace baton::model
