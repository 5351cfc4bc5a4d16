// SPDX-License-Identifier: Apache-2.0
// A model that reports what its steps were and how long they took.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/model/model.h"
#include "common/worker/profile.h"

namespace baton::worker {

// Forwards everything; `observe` hears of every Forward, on its thread.
class TimedModel final : public model::Model {
 public:
  TimedModel(std::unique_ptr<model::Model> inner, std::function<void(const StepWork&)> observe)
      : inner_(std::move(inner)), observe_(std::move(observe)) {}

  const model::ModelInfo& info() const override { return inner_->info(); }
  const kv::KvLayout& kv_layout() const override { return inner_->kv_layout(); }
  uint32_t max_step_tokens() const override { return inner_->max_step_tokens(); }
  std::optional<model::DeviceMemory> device_memory() const override {
    return inner_->device_memory();
  }
  absl::Status Attach(kv::KvArena& arena) override { return inner_->Attach(arena); }

  absl::Status Forward(std::span<const model::Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const model::LayerDone& layer_done) override {
    StepWork work = WorkOf(slices);
    work.start = absl::Now();
    absl::Status status = inner_->Forward(slices, arena, logits, layer_done);
    work.end = absl::Now();
    observe_(work);
    return status;
  }
  void ForEach(uint32_t count, absl::FunctionRef<void(uint32_t)> function) override {
    inner_->ForEach(count, function);
  }
  void Idle() override { inner_->Idle(); }

 private:
  // A slice of one token is taken for a decoding sequence's.
  static StepWork WorkOf(std::span<const model::Slice> slices) {
    StepWork work;
    for (const model::Slice& slice : slices) {
      if (slice.tokens.size() == 1) {
        ++work.decode_rows;
      } else {
        work.prompt_tokens += static_cast<uint32_t>(slice.tokens.size());
        ++work.prompts;
      }
    }
    return work;
  }

  const std::unique_ptr<model::Model> inner_;
  const std::function<void(const StepWork&)> observe_;
};

}  // namespace baton::worker
