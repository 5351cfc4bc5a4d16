// SPDX-License-Identifier: Apache-2.0
#include "common/engine/mask_ahead.h"

#include <utility>

namespace baton::engine {
namespace {

constexpr size_t kMostJobs = 256;

}  // namespace

MaskAhead::~MaskAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MaskAhead::Post(std::shared_ptr<grammar::Matcher> matcher, const grammar::Cursor& cursor) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= kMostJobs) return;
    jobs_.push_back({std::move(matcher), cursor});
  }
  wake_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void MaskAhead::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.matcher->Prepare(job.cursor);
    lock.lock();
  }
}

}  // namespace baton::engine
