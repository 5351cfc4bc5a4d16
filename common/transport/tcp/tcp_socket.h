// SPDX-License-Identifier: Apache-2.0
// TCP sockets by HOST:PORT ([HOST]:PORT for IPv6).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

// No delay, keepalive, and a limit on how long sent bytes may stay unheard.
void SetTcpOptions(int fd);

// Begins to connect. The host must be numeric: no name is looked up on the
// I/O thread. INVALID_ARGUMENT: it is not. UNAVAILABLE: refused at once.
absl::StatusOr<UniqueFd> DialTcp(const std::string& address);

// Listens on options.tcp_address; the endpoint is numeric, with the port that
// was given. UNAVAILABLE: the address is taken. INVALID_ARGUMENT: no such
// host, or it means all addresses and tcp_advertise_host is not set.
absl::StatusOr<Listener> ListenTcp(const ReceiverOptions& options);

}  // namespace baton::transport
