// SPDX-License-Identifier: Apache-2.0
#include "client/cli/interrupts.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace baton::cli {
namespace {

sigset_t InterruptSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Interrupts::Interrupts(std::function<void()> handler) : handler_(std::move(handler)) {
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC));
  quit_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  watcher_ = std::thread([this] { Watch(); });
}

Interrupts::~Interrupts() {
  const uint64_t one = 1;
  (void)!write(quit_.get(), &one, sizeof(one));
  watcher_.join();
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Interrupts::Watch() {
  pollfd fds[] = {{signals_.get(), POLLIN, 0}, {quit_.get(), POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if ((fds[1].revents & POLLIN) != 0) return;
    if ((fds[0].revents & POLLIN) == 0) continue;
    signalfd_siginfo info;
    if (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) handler_();
  }
}

}  // namespace baton::cli
