// SPDX-License-Identifier: Apache-2.0
// The one state machine behind every server stream of the router.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace baton::router {

// What a stream writes to: a gRPC reactor, or a fake in tests. Calls come one
// at a time and never after Finish, but for Abort.
template <typename Message>
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Answered by StreamWriter::OnWriteDone. `message` stays valid until then.
  virtual void StartWrite(const Message& message) = 0;
  // Ends the stream, also while a write is under way. Answered by OnDone.
  virtual void Finish(const absl::Status& status) = 0;
  // Cuts the connection's stream off; the peer has not taken its status.
  virtual void Abort() = 0;
};

struct StreamLimits {
  size_t max_pending_bytes = 1 << 20;
  // Longest time that one write may take.
  absl::Duration max_stall = absl::Seconds(30);
};

// Queues messages and hands them to the sink one at a time. Messages that wait
// are merged where `Merge` can, so a reader that lags gets fewer, bigger ones.
// A peer that does not read is found by bytes that wait and by the age of the
// write under way: gRPC's flow control alone stops a stream only after
// megabytes.
//
//   open -> finishing (Finish: what waits is still written) -> finished
//   open, finishing -> finished at once on OnCancel, or Finish of a stream
//   that is over its limits
//
// Finish reaches the sink exactly once. Thread-safe. Must outlive the sink's
// last callback: hold it by shared_ptr on both sides.
template <typename Message>
class StreamWriter final {
 public:
  // Appends `next` to `last` and returns true, or leaves both as they are.
  using Merge = bool (*)(Message& last, const Message& next);

  // `sink` must live until OnDone is called.
  StreamWriter(StreamSink<Message>* sink, const StreamLimits& limits, Merge merge)
      : limits_(limits), merge_(merge), sink_(sink) {}

  // Dropped when the stream is finishing or its peer is gone.
  void Send(Message message, absl::Time now) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen) return;
    pending_bytes_ += message.ByteSizeLong();
    if (pending_.empty() || !merge_(pending_.back(), message)) {
      pending_.push_back(std::move(message));
    }
    Advance(now);
  }

  // Only the first call counts.
  void Finish(absl::Status status, absl::Time now) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen) return;
    state_ = State::kFinishing;
    status_ = std::move(status);
    if (!Limits(now).ok()) return FinishNow(now);  // what waits would never arrive
    Advance(now);
  }

  void OnWriteDone(bool ok, absl::Time now) {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    current_.reset();
    if (!ok) pending_.clear();
    if (state_ != State::kFinished) Advance(now);
  }

  // The peer is gone.
  void OnCancel(absl::Time now) {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (state_ == State::kFinished) return;
    if (!status_.has_value()) status_ = absl::CancelledError("the peer has gone");
    FinishNow(now);
  }

  // The sink is about to be deleted.
  void OnDone() {
    const std::lock_guard lock(mutex_);
    state_ = State::kFinished;
    sink_ = nullptr;
  }

  // CANCELLED: the peer is gone; RESOURCE_EXHAUSTED: it does not read.
  absl::Status Check(absl::Time now) const {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return absl::CancelledError("the client has gone");
    return Limits(now);
  }

  // For streams that Finish was called on: true once nothing is left to do.
  // Ends one whose peer does not take the rest, first with a status, then hard.
  bool Reap(absl::Time now) {
    const std::lock_guard lock(mutex_);
    if (sink_ == nullptr) return true;
    if (state_ == State::kFinishing && !Limits(now).ok()) {
      status_ = Limits(now);
      FinishNow(now);
    } else if (state_ == State::kFinished && now - finished_at_ > limits_.max_stall) {
      sink_->Abort();
      return true;
    }
    return false;
  }

 private:
  enum class State : uint8_t { kOpen, kFinishing, kFinished };

  absl::Status Limits(absl::Time now) const {
    if (pending_bytes_ > limits_.max_pending_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the client reads too slowly: ", pending_bytes_,
                       " bytes wait for it; the limit is ", limits_.max_pending_bytes));
    }
    if (writing_ && now - write_start_ > limits_.max_stall) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the client reads too slowly: a write took longer than the limit of ",
                       absl::FormatDuration(limits_.max_stall)));
    }
    return absl::OkStatus();
  }

  void Advance(absl::Time now) {
    if (writing_) return;
    if (!pending_.empty()) {
      current_ = std::move(pending_.front());
      pending_.pop_front();
      pending_bytes_ = 0;
      for (const Message& message : pending_) pending_bytes_ += message.ByteSizeLong();
      writing_ = true;
      write_start_ = now;
      sink_->StartWrite(*current_);
    } else if (state_ == State::kFinishing) {
      FinishNow(now);
    }
  }

  void FinishNow(absl::Time now) {
    state_ = State::kFinished;
    finished_at_ = now;
    pending_.clear();
    sink_->Finish(*status_);
  }

  const StreamLimits limits_;
  const Merge merge_;
  mutable std::mutex mutex_;
  StreamSink<Message>* sink_;
  State state_ = State::kOpen;
  bool cancelled_ = false;
  bool writing_ = false;
  std::deque<Message> pending_;
  size_t pending_bytes_ = 0;        // an upper bound once messages were merged
  std::optional<Message> current_;  // being written
  absl::Time write_start_, finished_at_;
  std::optional<absl::Status> status_;
};

}  // namespace baton::router
