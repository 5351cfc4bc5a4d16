// SPDX-License-Identifier: Apache-2.0
// A model that reports what its steps were and how long they took.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/model/model.h"
#include "common/model/step_queue.h"
#include "common/worker/profile.h"

namespace baton::worker {

// Forwards everything; `observe` hears of every step, on its thread. One that was
// started behind another begins when that one is read.
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
  model::StepQueue* queue() override { return inner_->queue() == nullptr ? nullptr : &queue_; }

 private:
  class Queue final : public model::StepQueue {
   public:
    explicit Queue(TimedModel& owner) : owner_(owner) {}
    bool Chooses(const sampling::Params& params) const override { return inner().Chooses(params); }

    absl::Status Start(std::span<const model::Slice> slices, const kv::KvArena& arena) override {
      StepWork work = WorkOf(slices);
      work.start = absl::Now();
      absl::Status status = inner().Start(slices, arena);
      if (status.ok()) started_.push_back(work);
      return status;
    }
    absl::StatusOr<model::StepResults> Collect() override {
      absl::StatusOr<model::StepResults> results = inner().Collect();
      if (started_.empty()) return results;
      StepWork work = started_.front();
      started_.pop_front();
      work.end = absl::Now();
      work.start = std::max(work.start, std::exchange(free_, work.end));
      owner_.observe_(work);
      return results;
    }

   private:
    model::StepQueue& inner() const { return *owner_.inner_->queue(); }

    TimedModel& owner_;
    std::deque<StepWork> started_;
    absl::Time free_ = absl::InfinitePast();
  };

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
  Queue queue_{*this};
};

}  // namespace baton::worker
