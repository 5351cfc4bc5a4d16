// SPDX-License-Identifier: Apache-2.0
// --profile: a trace of a worker's steps, sequences and hand-offs that
// chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/engine/engine.h"
#include "common/model/step_profile.h"

namespace baton::worker {

// What a step computed.
struct StepWork {
  absl::Time start, end;
  uint32_t decode_rows = 0;
  uint32_t prompt_tokens = 0;
  uint32_t prompts = 0;  // of which those tokens are
};

// Writes the Trace Event Format as a JSON array whose end may be missing: what
// a worker that was killed leaves can be opened, too. Times are microseconds of
// the system's clock, so that the files of several workers of a host can be
// put together. Steps come with the milliseconds of their parts on the first
// thread, sequences and hand-offs as spans of their own.
//
// Thread safety: all methods may be called from any thread, but for parts().
class Profile final {
 public:
  // At most `most_events`; then the trace stops, and says so.
  // UNAVAILABLE when the file cannot be written; the message names the flag.
  static absl::StatusOr<std::unique_ptr<Profile>> Create(const std::string& path,
                                                         std::string_view process,
                                                         uint64_t most_events = 2'000'000);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // For the model to fill; belongs to the thread that runs steps.
  model::StepProfile* parts() { return &parts_; }

  // Takes what parts() says of it. On the thread that runs steps.
  void AddStep(const StepWork& step);
  // What the engine told: prompts begun, hand-offs and sequences ended.
  void Add(const engine::StepOutput& output);

 private:
  struct Begun {
    absl::Time start;
    absl::Time prefill_end;  // infinite past: not yet
    uint64_t tokens = 0;
  };

  Profile(std::ofstream file, uint64_t most_events);
  void Write(std::string_view event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Span(std::string_view category, std::string_view name, const engine::SequenceRef& ref,
            absl::Time start, absl::Time end, std::string_view args)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  model::StepProfile parts_;
  absl::Mutex mutex_;
  std::ofstream file_ ABSL_GUARDED_BY(mutex_);
  const uint64_t most_events_;
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<engine::SequenceRef, Begun> begun_ ABSL_GUARDED_BY(mutex_);
};

// Writes down what the engine tells, and passes it on. Both must outlive it.
class ProfiledListener final : public engine::Listener {
 public:
  ProfiledListener(Profile* profile, engine::Listener* next) : profile_(profile), next_(next) {}
  void OnStep(const engine::StepOutput& output) override {
    profile_->Add(output);
    next_->OnStep(output);
  }

 private:
  Profile* const profile_;
  engine::Listener* const next_;
};

}  // namespace baton::worker
