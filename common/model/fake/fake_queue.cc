// SPDX-License-Identifier: Apache-2.0
#include "common/model/fake/fake_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampler.h"

namespace baton::model {

FakeQueue::Kept::Kept(const Slice& original)
    : slice(original),
      tokens(original.tokens.begin(), original.tokens.end()),
      blocks(original.blocks.begin(), original.blocks.end()) {
  if (slice.choice == nullptr) return;
  params = *slice.choice->params;
  position = slice.choice->position;
  context.assign(position.tokens.begin(), position.tokens.end());
  end_tokens.assign(position.end_tokens.begin(), position.end_tokens.end());
  allowed.assign(position.allowed.begin(), position.allowed.end());
}

size_t FakeQueue::Kept::logit_rows() const {
  if (slice.logit_rows == LogitRows::kAll) return tokens.size();
  return slice.logit_rows == LogitRows::kLast ? 1 : 0;
}

Slice FakeQueue::Kept::At(TokenId followed) {
  if (slice.follows) tokens = {followed};
  Slice own = slice;
  own.tokens = tokens;
  own.blocks = blocks;
  return own;
}

absl::StatusOr<TokenId> FakeQueue::Kept::Choose(std::span<const float> logits,
                                                uint32_t usable) const {
  sampling::Position own = position;
  own.tokens = context;
  own.end_tokens = end_tokens;
  own.allowed = allowed;
  own.history = nullptr;
  BATON_ASSIGN_OR_RETURN(const sampling::Sample sample,
                         sampling::SampleToken(logits, usable, own, params));
  return sample.token;
}

absl::Status FakeQueue::Start(std::span<const Slice> slices, const kv::KvArena& arena) {
  if (steps_.size() >= kMostSteps) {
    return absl::FailedPreconditionError(
        absl::StrCat("fake model: ", kMostSteps, " steps are started already"));
  }
  const auto chooses = [](const Kept& kept) { return kept.slice.choice != nullptr; };
  const auto before = steps_.empty() ? static_cast<std::ptrdiff_t>(tokens_.size())
                                     : std::count_if(steps_.back().slices.begin(),
                                                     steps_.back().slices.end(), chooses);
  Step step{{}, &arena};
  for (const Slice& slice : slices) {
    if (slice.follows && *slice.follows >= before) {
      return absl::InvalidArgumentError(absl::StrCat(
          "fake model: a slice follows choice ", *slice.follows, "; the step before has ", before));
    }
    step.slices.emplace_back(slice);
  }
  steps_.push_back(std::move(step));
  logits_ = {};  // whoever still reads them is found out
  return absl::OkStatus();
}

absl::StatusOr<StepResults> FakeQueue::Collect() {
  if (steps_.empty()) return absl::FailedPreconditionError("fake model: no step is started");
  Step step = std::move(steps_.front());
  steps_.pop_front();
  BATON_RETURN_IF_ERROR(Run(step));
  return StepResults{logits_, tokens_};
}

// As on a device what is no token counts as 0.
TokenId FakeQueue::Followed(const Kept& kept) const {
  if (!kept.slice.follows || *kept.slice.follows >= tokens_.size()) return 0;
  return tokens_[*kept.slice.follows].value_or(0);
}

absl::Status FakeQueue::Run(Step& step) {
  const size_t width = model_.info().vocabulary_size;
  std::vector<Slice> slices;
  size_t rows = 0;
  for (Kept& kept : step.slices) {
    slices.push_back(kept.At(Followed(kept)));
    rows += kept.logit_rows();
  }
  tokens_.clear();
  std::vector<float> all(rows * width);
  BATON_RETURN_IF_ERROR(model_.Forward(slices, *step.arena, all, {}));
  logits_.clear();
  std::span<const float> rest = all;
  for (const Kept& kept : step.slices) {
    const auto own = rest.first(kept.logit_rows() * width);
    rest = rest.subspan(own.size());
    if (kept.slice.choice == nullptr) {
      logits_.insert(logits_.end(), own.begin(), own.end());
    } else {
      tokens_.push_back(kept.Choose(own, model_.info().usable_vocabulary));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::model
