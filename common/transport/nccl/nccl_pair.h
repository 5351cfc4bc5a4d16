// SPDX-License-Identifier: Apache-2.0
// A communicator of two, its memory on the GPU, and what moves by it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/transport/event_loop.h"
#include "common/transport/nccl/nccl_runtime.h"

namespace baton::transport {

// Sends before anything else, and is told like a put: that bytes get through.
inline constexpr size_t kNcclTrialBytes = 8;

// Pinned memory of a connection, made on NCCL's thread when its first communicator
// begins, and freed there.
struct NcclHostRing {
  NcclHostRing(NcclRuntime* on, size_t size) : runtime(on), bytes(size) {}
  ~NcclHostRing();

  NcclRuntime* const runtime;
  const size_t bytes;
  std::byte* data = nullptr;
  bool lost = false;  // a stream that never came to its end may still use it
};

enum class NcclRank : int { kSender = 0, kReceiver = 1 };

// How a pair tells the loop that owns it. All run on the loop.
struct NcclEvents {
  std::function<void(const NcclUniqueId&)> named;  // of a sender
  std::function<void(std::byte* ring)> up;         // both sides are there
  // So many more are where they belong, in order: of a sender, its memory is free.
  std::function<void(uint64_t)> moved;
  std::function<void(const absl::Status&)> lost;  // given up; once
  // After Close: nothing reads or writes the ring any more; not `clean`: a stream
  // did not come to its end, and NCCL had better be left alone.
  std::function<void(bool clean)> closed;
};

// Lives on NCCL's thread, but for Make. Never waits: Poll looks what has happened.
class NcclPair final : public Polled {
 public:
  struct Plan {
    NcclRank rank;
    std::shared_ptr<NcclHostRing> ring;
    absl::Duration stall_limit;
    std::shared_ptr<void> place;
  };
  using Tell = std::function<void(std::function<void(const NcclEvents&)>)>;
  using Clock = EventLoop::Clock;

  // `tell` hands something to the owner's loop, from any thread.
  NcclPair(NcclRuntime* runtime, Plan plan, Tell tell)
      : runtime_(*runtime), plan_(std::move(plan)), tell_(std::move(tell)) {}

  // Makes an id and begins. The sender's.
  void StartNamed();
  // Begins once `before`, the last of the same ring, is gone (null: at once).
  void Start(const NcclUniqueId& id, std::shared_ptr<const NcclPair> before);
  // Sends the ring's bytes there, or takes bytes into them, after what came before.
  void Move(size_t offset, size_t bytes) { waiting_.push_back({offset, bytes}); }
  void Close();

  // Whether anything has moved on.
  bool Poll() override;
  bool busy() const override {
    return state_ == State::kUp ? Working() : state_ != State::kGone && state_ != State::kNew;
  }
  bool gone() const override { return state_ == State::kGone; }

 private:
  enum class State { kNew, kWaiting, kJoining, kUp, kDraining, kGone };
  struct Bytes {
    size_t offset, size;
    bool trial = false;
  };

  bool Working() const { return !waiting_.empty() || !posted_.empty() || entering_; }
  bool Begin();
  absl::Status Allocate();
  bool PollJoining();
  bool PollUp();
  bool PollDraining();
  // Hands the next bytes to NCCL.
  absl::Status Post(const Bytes& bytes);
  // NCCL has them in the stream: what follows in it.
  absl::Status Follow();
  absl::StatusOr<bool> Settled();
  absl::StatusOr<uint64_t> TakeReached();
  bool StalledNow() const;
  bool Fail(const absl::Status& reason);
  void Abort();
  void Release(bool clean);
  gpu::Event TakeEvent();

  NcclRuntime& runtime_;
  Plan plan_;
  const Tell tell_;
  State state_ = State::kNew;
  bool closing_ = false, clean_ = true;
  NcclUniqueId id_{};
  std::shared_ptr<const NcclPair> before_;
  NcclComm comm_ = nullptr;
  gpu::Stream stream_ = nullptr;
  std::byte* device_ = nullptr;  // as large as the ring
  std::deque<Bytes> waiting_;
  bool entering_ = false;  // posted_.back() is being taken up by NCCL
  Bytes entered_{};
  std::deque<gpu::Event> posted_;  // oldest first
  std::vector<gpu::Event> spare_;
  gpu::Event last_ = nullptr;  // of a stream that drains
  Clock::time_point moved_at_;
};

// An owner's hold of a pair. Belongs to the owner's loop; after its end nothing is
// told any more and the pair ends by itself.
class NcclLine {
 public:
  NcclLine(std::shared_ptr<NcclRuntime> runtime, EventLoop* loop, NcclPair::Plan plan,
           NcclEvents events);
  ~NcclLine();
  NcclLine(const NcclLine&) = delete;
  NcclLine& operator=(const NcclLine&) = delete;

  void StartNamed();
  void Start(const NcclUniqueId& id, const NcclLine* before);
  void Move(size_t offset, size_t bytes);
  void Close();

 private:
  // What both threads know of each other.
  struct Mail {
    std::mutex mutex;
    EventLoop* loop;   // guarded by mutex; null: nobody listens
    bool open = true;  // the loop's
    NcclEvents events;
  };

  const std::shared_ptr<NcclRuntime> runtime_;
  const std::shared_ptr<Mail> mail_;
  const std::shared_ptr<NcclPair> pair_;
};

}  // namespace baton::transport
