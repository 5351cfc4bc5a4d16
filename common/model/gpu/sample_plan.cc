// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/sample_plan.h"

#include <algorithm>
#include <bit>

#include "common/model/gpu/step_upload.h"

namespace baton::model::gpu {
namespace {

// Pairs of words come before single ones, so that both are aligned.
class ListWriter final {
 public:
  explicit ListWriter(SamplePlan& plan) : plan_(plan) {}

  void AddHistories(std::span<const Slice> slices) {
    ForEach(slices, [&](dev::SampleRow& row, const TokenChoice& choice) {
      row.history_begin = pairs();
      if (choice.params->penalizes()) AddHistory(choice.position);
      row.history_end = pairs();
    });
  }
  void AddBiases(std::span<const Slice> slices) {
    ForEach(slices, [&](dev::SampleRow& row, const TokenChoice& choice) {
      row.bias_begin = pairs();
      for (const auto& [token, bias] : choice.params->logit_bias) {
        plan_.lists.insert(plan_.lists.end(), {token, std::bit_cast<uint32_t>(bias)});
      }
      row.bias_end = pairs();
    });
  }
  void AddBanned(std::span<const Slice> slices) {
    ForEach(slices, [&](dev::SampleRow& row, const TokenChoice& choice) {
      row.banned_begin = words();
      const auto banned = sampling::BannedTokens(*choice.params, choice.position);
      plan_.lists.insert(plan_.lists.end(), banned.begin(), banned.end());
      row.banned_end = words();
    });
  }
  void AddMasks(std::span<const Slice> slices) {
    ForEach(slices, [&](dev::SampleRow& row, const TokenChoice& choice) {
      row.mask_begin = words();
      for (const uint64_t word : choice.position.allowed) {
        plan_.lists.push_back(static_cast<uint32_t>(word));
        plan_.lists.push_back(static_cast<uint32_t>(word >> 32));
      }
      row.mask_words = words() - row.mask_begin;
    });
  }

 private:
  uint32_t words() const { return static_cast<uint32_t>(plan_.lists.size()); }
  uint32_t pairs() const { return words() / 2; }

  template <typename Function>
  void ForEach(std::span<const Slice> slices, Function function) {
    size_t next = 0;
    for (const Slice& slice : slices) {
      if (slice.choice != nullptr) function(plan_.rows[next++], *slice.choice);
    }
  }

  void AddHistory(const sampling::Position& position) {
    sampling::TokenHistory own;
    const sampling::TokenHistory* history = position.history;
    if (history == nullptr) {
      own.Update(position.tokens, position.prompt_tokens());
      history = &own;
    }
    for (const auto& entry : history->entries()) {
      plan_.lists.insert(plan_.lists.end(), {entry.token, entry.outputs});
    }
  }

  SamplePlan& plan_;
};

dev::SampleRow RowOf(const TokenChoice& choice, uint32_t usable_vocabulary) {
  dev::SampleRow row{};
  row.usable_vocabulary = usable_vocabulary;
  row.top_k = choice.params->top_k;
  row.temperature = choice.params->temperature;
  row.top_p = choice.params->top_p;
  row.min_p = choice.params->min_p;
  row.repetition_penalty = choice.params->repetition_penalty;
  row.presence_penalty = choice.params->presence_penalty;
  row.frequency_penalty = choice.params->frequency_penalty;
  row.seed = choice.params->seed;
  row.choice = choice.position.choice;
  row.output_index = choice.position.output_index;
  return row;
}

// A vocabulary of nothing: the kernel says kAllBanned.
dev::SampleRow PaddedRow() {
  dev::SampleRow row{};
  row.repetition_penalty = 1;
  return row;
}

}  // namespace

size_t SamplePlan::bytes() const {
  return rows.size() * sizeof(dev::SampleRow) + lists.size() * sizeof(uint32_t) +
         2 * StepUpload::kAlignment;
}

SamplePlan PlanSampling(std::span<const Slice> slices, uint32_t usable_vocabulary, size_t padded) {
  SamplePlan plan;
  for (const Slice& slice : slices) {
    if (slice.choice == nullptr) continue;
    plan.rows.push_back(RowOf(*slice.choice, usable_vocabulary));
    plan.constrained.push_back(!slice.choice->position.allowed.empty());
  }
  if (plan.rows.empty()) return plan;
  ListWriter writer(plan);
  writer.AddHistories(slices);
  writer.AddBiases(slices);
  writer.AddBanned(slices);
  writer.AddMasks(slices);
  plan.rows.resize(std::max(plan.rows.size(), padded), PaddedRow());
  return plan;
}

}  // namespace baton::model::gpu
