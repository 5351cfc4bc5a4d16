// SPDX-License-Identifier: Apache-2.0
// Hosts with RDMA, or whatever else UCX finds: frames on a TCP connection, bytes
// by one-sided puts into a ring of the receiver's.
//
// The ring is the connection's own: memory that UCX has allocated and registered
// when the hello came, and that goes with the connection. A sender that was
// revoked, or is late, can write there and nowhere else; whether bytes count is
// decided by the frame that follows them, against the ticket, as with the other
// transports. The sender gathers slices in memory of its own with the same
// offsets, so a source may be reused at once.
//
// The socket is what tells of a peer's death at once. When UCX fails while the
// socket lives, or acknowledges nothing for too long, hand-offs go on over the
// socket, from the first slice that the receiver has not confirmed.
#pragma once

#include <string>
#include <vector>

#include "common/transport/put_channel.h"

namespace baton::transport {

Transport UcxTransport();

// Whether none of these lanes (UcxPeer::lanes) is better than a TCP socket.
bool OnlyTcp(const std::vector<std::string>& lanes);

}  // namespace baton::transport
