// SPDX-License-Identifier: Apache-2.0
// Keeps what an engine says, for tests to wait for.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/engine/engine.h"
#include "common/worker/handoff_end.h"

namespace baton::worker {

class RecordingListener final : public engine::Listener {
 public:
  // Hears of ends as RouterLinks would tell it; may be null.
  explicit RecordingListener(HandoffEnd* handoff) : handoff_(handoff) {}

  void OnStep(const engine::StepOutput& output) override {
    for (const engine::EndOutput& end : output.ends) handoff_->Ended(end.ref);
    absl::MutexLock lock(&mutex_);
    for (const engine::TokenOutput& token : output.tokens) {
      tokens_[token.ref].push_back(token.sample.token);
    }
    for (const engine::EndOutput& end : output.ends) ends_[end.ref].push_back(end);
  }

  // The sequence's end; nullopt when none came within `timeout`.
  std::optional<engine::EndOutput> AwaitEnd(engine::SequenceRef ref,
                                            absl::Duration timeout = absl::Seconds(5)) {
    absl::MutexLock lock(&mutex_);
    const auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ends_.contains(ref); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), timeout)) return std::nullopt;
    return ends_[ref].front();
  }

  size_t CountEnds(engine::SequenceRef ref) {
    absl::MutexLock lock(&mutex_);
    return ends_.contains(ref) ? ends_[ref].size() : 0;
  }

  std::vector<TokenId> Tokens(engine::SequenceRef ref) {
    absl::MutexLock lock(&mutex_);
    return tokens_[ref];
  }

  bool AwaitTokens(engine::SequenceRef ref, size_t count,
                   absl::Duration timeout = absl::Seconds(5)) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return tokens_[ref].size() >= count;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), timeout);
  }

 private:
  HandoffEnd* const handoff_;
  absl::Mutex mutex_;
  std::map<engine::SequenceRef, std::vector<TokenId>> tokens_ ABSL_GUARDED_BY(mutex_);
  std::map<engine::SequenceRef, std::vector<engine::EndOutput>> ends_ ABSL_GUARDED_BY(mutex_);
};

// Waits until `engine`'s load, which lags behind its answers, is as wanted;
// false after `timeout`.
template <typename Wanted>
bool AwaitLoad(const engine::Engine& engine, const Wanted& wanted,
               absl::Duration timeout = absl::Seconds(2)) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!wanted(engine.load())) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

// Waits until no block of `engine` is held but by its prefix cache.
inline bool AwaitAllFree(const engine::Engine& engine) {
  return AwaitLoad(engine, [](const engine::Load& load) {
    return load.kv_blocks_free + load.kv_blocks_reclaimable == load.kv_blocks_total;
  });
}

}  // namespace baton::worker
