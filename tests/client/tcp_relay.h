// SPDX-License-Identifier: Apache-2.0
// One TCP connection passed through, to be cut when a test wants it.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "common/base/unique_fd.h"

namespace baton::testing {

// Accepts one connection on a loopback port and carries bytes both ways to
// `target_port` until Cut().
class TcpRelay final {
 public:
  explicit TcpRelay(int target_port);
  ~TcpRelay();

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Ends connection and listener, as the death of the peer's process does.
  void Cut();

 private:
  void Carry(int target_port);

  UniqueFd listener_, near_, far_;
  std::atomic<bool> connected_{false};
  int port_ = 0;
  std::thread carrier_;
};

}  // namespace baton::testing
