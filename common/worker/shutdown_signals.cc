// SPDX-License-Identifier: Apache-2.0
#include "common/worker/shutdown_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "common/base/log.h"

namespace baton::worker {
namespace {

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { Run(); });
}

ShutdownSignals::~ShutdownSignals() {
  stopping_ = true;
  // The thread waits for it: NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread)
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void ShutdownSignals::Handle(std::function<void()> handler, absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  handler_ = std::move(handler);
  limit_ = limit;
}

bool ShutdownSignals::WaitForSignal(absl::Time deadline) {
  const sigset_t signals = EndSignals();
  for (;;) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    const timespec wait = absl::ToTimespec(std::min(left, absl::Hours(1)));
    const int number = sigtimedwait(&signals, nullptr, &wait);
    if (stopping_) return false;
    if (number > 0) return true;
  }
}

void ShutdownSignals::Run() {
  if (!WaitForSignal(absl::InfiniteFuture())) return;
  absl::Time deadline;
  std::function<void()> handler;
  {
    absl::MutexLock lock(&mutex_);
    handler = handler_;
    deadline = absl::Now() + limit_;
  }
  if (!handler) _exit(0);  // nothing runs yet, so there is nothing to finish
  handler();
  if (WaitForSignal(deadline)) _exit(130);
  if (stopping_) return;
  LogError("did not end in good order in time, giving up");
  _exit(1);
}

}  // namespace baton::worker
