// SPDX-License-Identifier: Apache-2.0
// A bad network between a sender and a receiver.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "common/base/unique_fd.h"

namespace baton::transport {

// Passes one connection after another on to `target`, byte by byte, until the
// sender's bytes reach the position where something happens.
class TcpProxy {
 public:
  struct Plan {
    uint64_t cut_after = ~uint64_t{0};     // both connections are closed
    uint64_t freeze_after = ~uint64_t{0};  // nothing passes any more, either way
    uint64_t flip_bit_at = ~uint64_t{0};   // of this byte, the lowest bit
  };

  TcpProxy(const std::string& target, const Plan& plan);
  ~TcpProxy();

  const std::string& address() const { return address_; }
  // Bytes of the sender that came so far.
  uint64_t passed() const { return passed_; }

 private:
  void Run();
  void Serve(int client, int server);

  const std::string target_;
  const Plan plan_;
  UniqueFd listener_;
  std::string address_;
  std::atomic<uint64_t> passed_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace baton::transport
