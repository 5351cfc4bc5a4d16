// SPDX-License-Identifier: Apache-2.0
// Masks of constraints are made while the model runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "common/grammar/matcher.h"

namespace baton::engine {

// A thread, started with the first job, that makes the mask of a sequence's next
// token, which the matcher keeps. Whoever samples asks the matcher: it finds the
// mask there, waits while it is being made, or makes it itself. Nothing but time
// depends on it, so a job beyond the bound is dropped.
//
// Thread safety: one thread calls Post.
class MaskAhead final {
 public:
  MaskAhead() = default;
  ~MaskAhead();
  MaskAhead(const MaskAhead&) = delete;
  MaskAhead& operator=(const MaskAhead&) = delete;

  void Post(std::shared_ptr<grammar::Matcher> matcher, const grammar::Cursor& cursor);

 private:
  struct Job {
    std::shared_ptr<grammar::Matcher> matcher;
    grammar::Cursor cursor;
  };
  void Run();

  std::mutex mutex_;  // guards jobs_ and stopping_
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace baton::engine
