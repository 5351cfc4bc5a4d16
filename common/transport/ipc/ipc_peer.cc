// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ipc/ipc_peer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/api/kernels.h"

namespace baton::transport {
namespace {

absl::Status Check(const char* what, const char* problem) {
  if (problem == nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": ", problem));
}

}  // namespace

IpcPeer::~IpcPeer() {
  for (const gpu::Event end : ends_) {
    if (end != nullptr) device_.drop_event(end);
  }
  if (stream_ != nullptr) device_.drop_stream(stream_);
  if (checksums_ != nullptr) device_.release_host(checksums_);
  if (pool_ != nullptr) device_.unmap_shared(pool_, pool_bytes_);
}

void IpcPeer::Open() {
  const absl::Status mapped = Map();
  if (!mapped.ok()) {
    lost_ = mapped;
    told_ = true;
  }
  events_.opened(mapped);
}

absl::Status IpcPeer::Map() {
  BATON_RETURN_IF_ERROR(Check("its KV pool cannot be mapped",
                              device_.map_shared(pool_fd_.get(), pool_bytes_, &pool_)));
  stream_ = device_.make_stream();
  checksums_ =
      static_cast<uint32_t*>(device_.allocate_host(kDepth * kMostIpcSlices * sizeof(uint32_t)));
  bool made = stream_ != nullptr && checksums_ != nullptr;
  for (gpu::Event& end : ends_) {
    end = device_.make_event();
    made = made && end != nullptr;
  }
  return made ? absl::OkStatus()
              : absl::UnavailableError("the device has no stream, event or pinned memory left");
}

void IpcPeer::Add(Job job) {
  if (lost_) return job.done(*lost_);
  waiting_.push_back(std::move(job));
  StartNext();
}

void IpcPeer::Close() {
  closed_ = true;
  events_ = {};
  if (!lost_) Lose(absl::UnavailableError("the connection has ended"));
}

void IpcPeer::StartNext() {
  while (!lost_ && !waiting_.empty() && under_way_.size() < kDepth) {
    Started started{std::move(waiting_.front()), next_slot_, Clock::now(), absl::OkStatus()};
    waiting_.pop_front();
    next_slot_ = (next_slot_ + 1) % kDepth;
    started.failed = Start(started.job, checksums_ + started.slot * kMostIpcSlices);
    const absl::Status marked = Check("a copy", device_.record(ends_[started.slot], stream_));
    // Without its end a job counts as ended: the device does nothing more.
    if (!marked.ok()) {
      started.job.done(marked);
      return Lose(marked);
    }
    const absl::Status failed = started.failed;
    under_way_.push_back(std::move(started));
    if (!failed.ok()) return Lose(failed);
  }
}

absl::Status IpcPeer::Start(const Job& job, uint32_t* checksums) {
  BATON_RETURN_IF_ERROR(StartCopies(job));
  return StartChecksums(job, checksums);
}

absl::Status IpcPeer::StartCopies(const Job& job) {
  for (const PullRun& run : job.runs) {
    if (run.to == nullptr) continue;
    BATON_RETURN_IF_ERROR(
        Check("a copy cannot be started",
              device_.copy(run.to, At(run.from), size_t{run.slices} * job.slice_bytes, stream_)));
  }
  return absl::OkStatus();
}

// Of what has landed. Runs of one length go in one launch.
absl::Status IpcPeer::StartChecksums(const Job& job, uint32_t* checksums) {
  gpu::ChecksumTask task{};
  task.slice_bytes = job.slice_bytes;
  for (size_t i = 0; i < job.runs.size();) {
    task.slices = job.runs[i].slices;
    task.out = checksums;
    task.count = 0;
    for (; i < job.runs.size() && job.runs[i].slices == task.slices &&
           task.count < gpu::ChecksumTask::kMostRuns;
         ++i) {
      const PullRun& run = job.runs[i];
      task.runs[task.count++] = run.to == nullptr ? At(run.from) : run.to;
    }
    checksums += size_t{task.count} * task.slices;
    BATON_RETURN_IF_ERROR(Check("checksums cannot be started", device_.checksums(task, stream_)));
  }
  return absl::OkStatus();
}

bool IpcPeer::Poll() {
  bool moved = false;
  while (TakeEnded()) moved = true;
  if (!told_ && !under_way_.empty() && Clock::now() - under_way_.front().at > stall_limit_) {
    // Its end may never come, so that is not waited for.
    if (!lost_)
      Lose(absl::DeadlineExceededError(absl::StrCat(
          "a copy on the device takes longer than ",
          std::chrono::duration_cast<std::chrono::milliseconds>(stall_limit_).count(), " ms")));
    TellLost();
    return true;
  }
  StartNext();
  if (lost_ && under_way_.empty()) TellLost();
  return moved;
}

bool IpcPeer::TakeEnded() {
  if (under_way_.empty()) return false;
  Started& oldest = under_way_.front();
  bool ended = false;
  const absl::Status asked =
      Check("a copy has failed", device_.reached(ends_[oldest.slot], &ended));
  if (asked.ok() && !ended) return false;
  // One that has failed ends the stream with it.
  const absl::Status outcome = asked.ok() ? oldest.failed : asked;
  const PutSource::Pulled done = std::move(oldest.job.done);
  size_t slices = 0;
  for (const PullRun& run : oldest.job.runs) slices += run.slices;
  const uint32_t* const sums = checksums_ + oldest.slot * kMostIpcSlices;
  const bool late = lost_.has_value();
  under_way_.pop_front();
  if (!outcome.ok() || late) {
    done(outcome.ok() ? *lost_ : outcome);
  } else {
    done(std::vector<uint32_t>(sums, sums + slices));
  }
  if (!outcome.ok() && !lost_) Lose(outcome);
  return true;
}

void IpcPeer::Lose(const absl::Status& reason) {
  lost_ = reason;
  for (const Job& job : std::exchange(waiting_, {})) job.done(reason);
}

void IpcPeer::TellLost() {
  if (std::exchange(told_, true) || !events_.lost) return;
  events_.lost(*lost_);
}

}  // namespace baton::transport
