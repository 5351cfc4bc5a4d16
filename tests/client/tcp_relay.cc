// SPDX-License-Identifier: Apache-2.0
#include "tests/client/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>

namespace baton::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// False when `from` has ended.
bool Pass(int from, int to) {
  char bytes[16384];
  const ssize_t count = recv(from, bytes, sizeof(bytes), 0);
  return count > 0 && send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL) == count;
}

}  // namespace

TcpRelay::TcpRelay(int target_port) : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size);
  listen(listener_.get(), 1);
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  carrier_ = std::thread([this, target_port] { Carry(target_port); });
}

TcpRelay::~TcpRelay() {
  Cut();
  carrier_.join();
}

void TcpRelay::Cut() {
  shutdown(listener_.get(), SHUT_RDWR);
  if (!connected_) return;
  shutdown(near_.get(), SHUT_RDWR);
  shutdown(far_.get(), SHUT_RDWR);
}

void TcpRelay::Carry(int target_port) {
  near_ = UniqueFd(accept(listener_.get(), nullptr, nullptr));
  if (!near_.valid()) return;
  far_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(target_port);
  if (connect(far_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return;
  }
  connected_ = true;
  pollfd fds[] = {{near_.get(), POLLIN, 0}, {far_.get(), POLLIN, 0}};
  while (poll(fds, 2, 10'000) > 0) {
    if (fds[0].revents != 0 && !Pass(near_.get(), far_.get())) return;
    if (fds[1].revents != 0 && !Pass(far_.get(), near_.get())) return;
  }
}

}  // namespace baton::testing
