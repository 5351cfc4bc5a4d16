// SPDX-License-Identifier: Apache-2.0
#include "tests/common/transport/tcp_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "common/transport/tcp/tcp_socket.h"

namespace baton::transport {
namespace {

// Blocking write of all; false when the other side is gone.
bool WriteAll(int fd, const char* data, size_t size, const std::atomic<bool>& stop) {
  while (size > 0 && !stop) {
    pollfd wait{fd, POLLOUT, 0};
    if (poll(&wait, 1, 20) == 0) continue;
    const ssize_t n = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return !stop;
}

}  // namespace

TcpProxy::TcpProxy(const std::string& target, const Plan& plan) : target_(target), plan_(plan) {
  ReceiverOptions options;
  options.tcp_address = "127.0.0.1:0";
  Listener listener = ListenTcp(options).value();
  listener_ = std::move(listener.socket);
  address_ = listener.endpoint.address;
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  stop_ = true;
  thread_.join();
}

void TcpProxy::Run() {
  while (!stop_) {
    pollfd wait{listener_.get(), POLLIN, 0};
    if (poll(&wait, 1, 20) <= 0) continue;
    UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    absl::StatusOr<UniqueFd> server = DialTcp(target_);
    if (!server.ok()) continue;
    passed_ = 0;
    Serve(client.get(), server->get());
  }
}

void TcpProxy::Serve(int client, int server) {
  std::array<char, 16384> buffer;
  std::array<pollfd, 2> wait = {pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
  while (!stop_) {
    if (poll(wait.data(), wait.size(), 20) <= 0) continue;
    const uint64_t before = passed_;
    if (before >= plan_.cut_after) return;
    if (before >= plan_.freeze_after) {
      while (!stop_) poll(nullptr, 0, 20);
      return;
    }
    if (wait[1].revents != 0) {
      const ssize_t n = recv(server, buffer.data(), buffer.size(), 0);
      if (n <= 0 || !WriteAll(client, buffer.data(), static_cast<size_t>(n), stop_)) return;
    }
    if (wait[0].revents == 0) continue;
    const uint64_t most = std::min(plan_.cut_after, plan_.freeze_after) - before;
    const ssize_t n = recv(client, buffer.data(), std::min<uint64_t>(buffer.size(), most), 0);
    if (n <= 0) return;
    const uint64_t at = plan_.flip_bit_at - before;
    if (plan_.flip_bit_at >= before && at < static_cast<uint64_t>(n)) buffer[at] ^= 1;
    if (!WriteAll(server, buffer.data(), static_cast<size_t>(n), stop_)) return;
    passed_ = before + static_cast<uint64_t>(n);
  }
}

}  // namespace baton::transport
