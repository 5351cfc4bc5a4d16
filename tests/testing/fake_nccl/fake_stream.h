// SPDX-License-Identifier: Apache-2.0
// A stream of the fake GPU: work in order, which moves on when somebody looks.
#pragma once

#include <deque>
#include <functional>

namespace baton::fake_nccl {

// Whether the last communicator that came up leads to another process. Of NCCL's thread.
extern bool peer_is_elsewhere;

class FakeStream {
 public:
  // True when it is complete; called again otherwise.
  using Work = std::function<bool()>;

  void Add(Work work) { work_.push_back(std::move(work)); }
  void Progress() {
    while (!work_.empty() && work_.front()()) work_.pop_front();
  }
  // What an abort leaves of it: a GPU would run the copies, on bytes that nobody
  // reads any more.
  void Drop() { work_.clear(); }

 private:
  std::deque<Work> work_;
};

}  // namespace baton::fake_nccl
