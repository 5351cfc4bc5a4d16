// SPDX-License-Identifier: Apache-2.0
// A StepQueue over a model's Forward. Every step runs when it is collected, the latest
// that a device could: whoever touches its blocks before spoils it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/model/model.h"
#include "common/model/step_queue.h"

namespace baton::model {

class FakeQueue final : public StepQueue {
 public:
  // `model` must outlive it.
  explicit FakeQueue(Model& model) : model_(model) {}

  bool Chooses(const sampling::Params& params) const override {
    return params.typical_p >= 1 && !params.logprobs;
  }
  absl::Status Start(std::span<const Slice> slices, const kv::KvArena& arena) override;
  absl::StatusOr<StepResults> Collect() override;

 private:
  // Copies of all that a slice refers to.
  struct Kept {
    explicit Kept(const Slice& slice);
    size_t logit_rows() const;
    // The slice behind a token, when it follows one.
    Slice At(TokenId followed);
    absl::StatusOr<TokenId> Choose(std::span<const float> logits, uint32_t usable) const;

    Slice slice;
    std::vector<TokenId> tokens;
    std::vector<kv::BlockId> blocks;
    sampling::Params params;
    sampling::Position position;
    std::vector<TokenId> context, end_tokens;
    std::vector<uint64_t> allowed;
  };
  struct Step {
    std::vector<Kept> slices;
    const kv::KvArena* arena;
  };

  absl::Status Run(Step& step);
  TokenId Followed(const Kept& kept) const;

  Model& model_;
  std::deque<Step> steps_;
  // Of the last one that ran.
  std::vector<float> logits_;
  std::vector<absl::StatusOr<TokenId>> tokens_;
};

}  // namespace baton::model
