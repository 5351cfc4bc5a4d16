// SPDX-License-Identifier: Apache-2.0
// A model that reports how long its steps take.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/model/model.h"

namespace baton::worker {

// Forwards everything; `observe` hears the time of every Forward, on its thread.
class TimedModel final : public model::Model {
 public:
  TimedModel(std::unique_ptr<model::Model> inner, std::function<void(absl::Duration)> observe)
      : inner_(std::move(inner)), observe_(std::move(observe)) {}

  const model::ModelInfo& info() const override { return inner_->info(); }
  const kv::KvLayout& kv_layout() const override { return inner_->kv_layout(); }
  uint32_t max_step_tokens() const override { return inner_->max_step_tokens(); }

  absl::Status Forward(std::span<const model::Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const model::LayerDone& layer_done) override {
    const absl::Time start = absl::Now();
    absl::Status status = inner_->Forward(slices, arena, logits, layer_done);
    observe_(absl::Now() - start);
    return status;
  }
  void Idle() override { inner_->Idle(); }

 private:
  const std::unique_ptr<model::Model> inner_;
  const std::function<void(absl::Duration)> observe_;
};

}  // namespace baton::worker
