// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "common/transport/put_channel.h"
#include "common/transport/shm/shm_transport.h"
#include "common/transport/tcp/tcp_transport.h"

namespace baton::transport {

std::span<const Transport> Transports() {
  static const std::array kTransports = {ShmTransport(), TcpTransport()};
  return kTransports;
}

const Transport* FindTransport(const std::string& name) {
  for (const Transport& transport : Transports()) {
    if (name == transport.name) return &transport;
  }
  return nullptr;
}

}  // namespace baton::transport
