// SPDX-License-Identifier: Apache-2.0
// A loaded model with an arena, for tests that look at its numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/kv/arena.h"
#include "common/model/load.h"
#include "common/model/model.h"

namespace baton::model {

struct TestSequence {
  std::vector<kv::BlockId> blocks;
  uint32_t length = 0;
};

class ModelRunner {
 public:
  // Fails the test and leaves the runner unusable when loading fails.
  ModelRunner(const std::string& path, const LoadOptions& options, uint32_t blocks = 64);
  ModelRunner(absl::StatusOr<std::unique_ptr<Model>> model, uint32_t blocks);

  bool ok() const { return model_ != nullptr; }
  Model& model() { return *model_; }
  kv::KvArena& arena() { return *arena_; }
  uint32_t vocabulary() const { return model_->info().vocabulary_size; }

  // With blocks for `tokens`, taken from the arena in an order that the seed
  // decides; never given back (see Reset).
  TestSequence NewSequence(uint32_t tokens, unsigned order_seed = 0);
  // All blocks are free again; their bytes stay.
  void Reset() { free_.clear(); }
  // Every byte of the arena becomes `value`.
  void Fill(int value);

  // Runs `tokens` after what the sequence holds, in steps of at most `chunk`.
  // Returns logits of every token, or of the last one.
  std::vector<float> Feed(TestSequence& sequence, std::span<const TokenId> tokens, uint32_t chunk,
                          LogitRows rows);
  // Prompt in one chunk, then greedily `count` tokens.
  std::vector<TokenId> Greedy(std::span<const TokenId> prompt, uint32_t count);

  // K (values: V) of one token and KV head as float32, without padding.
  std::vector<float> KvRow(const TestSequence& sequence, uint32_t layer, uint32_t position,
                           uint32_t head, bool values, uint32_t head_dim);

 private:
  std::unique_ptr<kv::KvArena> arena_;  // outlives the model
  std::unique_ptr<Model> model_;
  std::vector<kv::BlockId> free_;
};

TokenId Argmax(std::span<const float> logits);

// Random ids below the vocabulary.
std::vector<TokenId> RandomTokens(uint32_t count, uint32_t vocabulary, unsigned seed);

// Options for exact or fast on `isa`.
LoadOptions Options(const std::string& isa, Precision precision, uint32_t threads = 2);

// Names of the backends that this CPU can run.
std::vector<std::string> AvailableIsas();

}  // namespace baton::model
