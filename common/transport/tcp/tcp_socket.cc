// SPDX-License-Identifier: Apache-2.0
#include "common/transport/tcp/tcp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/base/system_error.h"

namespace baton::transport {
namespace {

// A peer whose machine vanished is noticed after this long.
constexpr unsigned kUserTimeoutMs = 5000;
constexpr int kKeepIdleSeconds = 2, kKeepIntervalSeconds = 1, kKeepProbes = 3;

struct Resolved {
  sockaddr_storage address{};
  socklen_t length = 0;
};

absl::StatusOr<Resolved> Resolve(const std::string& host_port, int flags) {
  const std::optional<HostPort> parts = SplitHostPort(host_port);
  if (!parts || parts->host.empty() || parts->port.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not HOST:PORT: ", host_port));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot resolve ", host_port, ": ", gai_strerror(error)));
  }
  Resolved resolved;
  resolved.length = found->ai_addrlen;
  std::memcpy(&resolved.address, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return resolved;
}

const sockaddr* Generic(const Resolved& resolved) {
  return reinterpret_cast<const sockaddr*>(&resolved.address);
}

// Numeric HOST:PORT.
std::string Print(const Resolved& resolved) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  getnameinfo(Generic(resolved), resolved.length, host.data(), host.size(), port.data(),
              port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  const bool v6 = resolved.address.ss_family == AF_INET6;
  return v6 ? absl::StrCat("[", host.data(), "]:", port.data())
            : absl::StrCat(host.data(), ":", port.data());
}

bool MeansAllAddresses(const Resolved& resolved) {
  if (resolved.address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &resolved.address, sizeof v4);
    return v4.sin_addr.s_addr == htonl(INADDR_ANY);
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, &resolved.address, sizeof v6);
  return IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

absl::StatusOr<UniqueFd> NewSocket(const Resolved& resolved) {
  UniqueFd fd(
      socket(resolved.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("no socket: ", ErrnoText(errno)));
  }
  return fd;
}

void SetInt(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

// What peers dial: the address that was bound, or the advertised host.
absl::StatusOr<std::string> Announced(const ReceiverOptions& options, const Resolved& bound) {
  if (options.tcp_advertise_host.empty()) {
    if (!MeansAllAddresses(bound)) return Print(bound);
    return absl::InvalidArgumentError(absl::StrCat("tcp_address ", options.tcp_address,
                                                   " means every address of this host; set "
                                                   "tcp_advertise_host to the one peers dial"));
  }
  sockaddr_in v4;  // the port stands at the same place in both families
  std::memcpy(&v4, &bound.address, sizeof v4);
  const bool bare_v6 = options.tcp_advertise_host.find(':') != std::string::npos &&
                       options.tcp_advertise_host.front() != '[';
  const std::string host =
      bare_v6 ? absl::StrCat("[", options.tcp_advertise_host, "]") : options.tcp_advertise_host;
  BATON_ASSIGN_OR_RETURN(const Resolved peer,
                         Resolve(absl::StrCat(host, ":", ntohs(v4.sin_port)), 0));
  return Print(peer);
}

}  // namespace

void SetTcpOptions(int fd) {
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  SetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

absl::StatusOr<UniqueFd> DialTcp(const std::string& address) {
  BATON_ASSIGN_OR_RETURN(const Resolved peer, Resolve(address, AI_NUMERICHOST));
  BATON_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(peer));
  SetTcpOptions(fd.get());
  if (connect(fd.get(), Generic(peer), peer.length) != 0 && errno != EINPROGRESS) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", address, ": ", ErrnoText(errno)));
  }
  return fd;
}

absl::StatusOr<Listener> ListenTcp(const ReceiverOptions& options) {
  BATON_ASSIGN_OR_RETURN(Resolved address, Resolve(options.tcp_address, AI_PASSIVE));
  Listener listener;
  BATON_ASSIGN_OR_RETURN(listener.socket, NewSocket(address));
  SetInt(listener.socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(listener.socket.get(), Generic(address), address.length) != 0 ||
      listen(listener.socket.get(), Listener::kBacklog) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.tcp_address, ": ", ErrnoText(errno)));
  }
  address.length = sizeof address.address;
  getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&address.address),
              &address.length);
  BATON_ASSIGN_OR_RETURN(std::string announced, Announced(options, address));
  listener.endpoint = {"tcp", std::move(announced)};
  return listener;
}

}  // namespace baton::transport
