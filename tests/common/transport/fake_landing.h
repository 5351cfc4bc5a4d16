// SPDX-License-Identifier: Apache-2.0
// A decode worker's side in tests: grants blocks of its own memory and writes
// down what it hears.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/kv/layout.h"
#include "common/transport/kv_transport.h"
#include "tests/common/transport/block_memory.h"

namespace baton::transport {

// How long a test waits for what must happen. Far above what it takes.
inline constexpr absl::Duration kPatience = absl::Seconds(10);

class FakeLanding final : public KvLanding {
  template <typename F>
  void Locked(F f) {
    std::lock_guard lock(mutex_);
    f();
    changed_.notify_all();
  }
  template <typename F>
  auto Read(F f) {
    std::lock_guard lock(mutex_);
    return f();
  }
  template <typename F>
  bool WaitFor(F f) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience), f);
  }

 public:
  using Block = BlockBytes;
  static constexpr uint32_t kMostTokens = 10'000;

  explicit FakeLanding(const kv::KvLayout& layout) : layout_(layout) {}

  // How hand-offs are answered from now on. Held ones wait for ReleaseHeld.
  void Hold(bool hold) {
    Locked([&] { hold_ = hold; });
  }
  void SkipBlocks(uint32_t first_block) {
    Locked([&] { first_block_ = first_block; });
  }
  // Grants blocks for all of a prompt, whatever the sender says of how many move.
  void TakeWholePrompts() {
    Locked([&] { whole_prompts_ = true; });
  }
  void Refuse(absl::Status status) {
    Locked([&] { refusal_ = std::move(status); });
  }
  void HoldCommits(bool hold) {
    Locked([&] { hold_commits_ = hold; });
  }
  void RefuseCommits(absl::Status status) {
    Locked([&] { commit_refusal_ = std::move(status); });
  }
  // The next grants use the memory of this hand-off's blocks.
  void ReuseBlocksOf(uint64_t landing_id) {
    Locked([&] { reuse_ = landing_id; });
  }

  void ReleaseHeld() {
    std::vector<std::pair<ReserveRequest, Granted>> held;
    Locked([&] { held.swap(held_); });
    for (auto& [request, granted] : held) Answer(request, granted);
  }
  void ReleaseCommits() {
    std::vector<Done> held;
    Locked([&] { held.swap(held_commits_); });
    for (Done& done : held) done(absl::OkStatus());
  }

  void Reserve(const ReserveRequest& request, Granted granted) override {
    bool hold = false;
    Locked([&] {
      ++asked_;
      origin_ = request.origin;
      hold = hold_;
      if (hold) held_.emplace_back(request, granted);
    });
    if (!hold) Answer(request, granted);
  }

  void Committed(uint64_t landing_id, const CommitState& state, const std::vector<bool>& in_pool,
                 Done accepted) override {
    bool hold = false;
    absl::Status answer;
    Locked([&] {
      committed_[landing_id] = state;
      in_pool_[landing_id] = in_pool;
      hold = hold_commits_;
      answer = commit_refusal_;
      if (hold) held_commits_.push_back(accepted);
    });
    if (!hold) accepted(answer);
  }

  void Aborted(uint64_t landing_id, const absl::Status& reason) override {
    Locked([&] {
      aborted_.emplace(landing_id, reason);
      ++abort_calls_;
    });
  }

  // Waits until `n` hand-offs were aborted / asked for / committed in all.
  bool WaitAborted(size_t n) {
    return WaitFor([&] { return abort_calls_ >= n; });
  }
  bool WaitAsked(size_t n) {
    return WaitFor([&] { return asked_ >= n; });
  }
  bool WaitCommitted(size_t n) {
    return WaitFor([&] { return committed_.size() >= n; });
  }
  bool WaitGranted(size_t n) {
    return WaitFor([&] { return answered_ >= n; });
  }

  kv::KvOrigin last_origin() {
    return Read([&] { return origin_; });
  }
  size_t granted() {
    return Read([&] { return blocks_.size(); });
  }
  size_t aborted() {
    return Read([&] { return abort_calls_; });
  }
  size_t committed() {
    return Read([&] { return committed_.size(); });
  }
  absl::Status abort_reason(uint64_t id) {
    return Read([&] { return aborted_[id]; });
  }
  CommitState state(uint64_t id) {
    return Read([&] { return committed_[id]; });
  }
  std::vector<bool> in_pool(uint64_t id) {
    return Read([&] { return in_pool_[id]; });
  }
  std::vector<std::byte*> blocks(uint64_t id) {
    return Read([&] { return blocks_[id]; });
  }
  // Landing ids are 1, 2, … in order of the grants.
  uint64_t last_id() {
    return Read([&] { return next_id_ - 1; });
  }
  uint64_t id_of(const std::string& key) {
    return Read([&] { return ids_[key]; });
  }

 private:
  void Answer(const ReserveRequest& request, const Granted& granted) {
    absl::StatusOr<Grant> answer = absl::UnknownError("unset");
    Locked([&] {
      if (!refusal_.ok()) {
        answer = refusal_;
        return;
      }
      if (request.prompt_tokens > kMostTokens) {
        answer = absl::ResourceExhaustedError("more tokens than any test asks for");
        return;
      }
      Grant grant;
      grant.landing_id = next_id_++;
      grant.first_block = first_block_;
      const uint32_t all = kv::BlocksForTokens(request.prompt_tokens);
      const uint32_t count = (whole_prompts_ ? all : request.block_count()) - first_block_;
      for (uint32_t i = 0; i < count; ++i) {
        if (reuse_ != 0) {
          grant.blocks.push_back(blocks_[reuse_].at(i));
        } else {
          memory_.push_back(std::make_unique<Block>(layout_.BlockBytes(), std::byte{0xee}));
          grant.blocks.push_back(memory_.back()->data());
        }
      }
      blocks_[grant.landing_id] = grant.blocks;
      ids_[request.handoff_key] = grant.landing_id;
      answer = std::move(grant);
    });
    const bool reserved = answer.ok();
    granted(std::move(answer));
    // Only now: who hears of the grant may revoke it.
    Locked([&] { answered_ += reserved ? 1 : 0; });
  }

  const kv::KvLayout layout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hold_ = false, hold_commits_ = false, whole_prompts_ = false;
  kv::KvOrigin origin_ = kv::KvOrigin::kOwn;
  uint32_t first_block_ = 0;
  uint64_t reuse_ = 0;
  absl::Status refusal_, commit_refusal_;
  uint64_t next_id_ = 1;
  size_t asked_ = 0, answered_ = 0, abort_calls_ = 0;
  std::vector<std::unique_ptr<Block>> memory_;
  std::map<uint64_t, std::vector<std::byte*>> blocks_;
  std::map<std::string, uint64_t> ids_;
  std::map<uint64_t, absl::Status> aborted_;
  std::map<uint64_t, CommitState> committed_;
  std::map<uint64_t, std::vector<bool>> in_pool_;
  std::vector<std::pair<ReserveRequest, Granted>> held_;
  std::vector<Done> held_commits_;
};

}  // namespace baton::transport
