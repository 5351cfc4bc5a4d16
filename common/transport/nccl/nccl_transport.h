// SPDX-License-Identifier: Apache-2.0
// Workers on GPUs: frames on a TCP connection, bytes by NCCL, from pinned memory of
// the sender through both GPUs into pinned memory of the receiver.
//
// A communicator of two belongs to the connection. The sender says on the socket
// what comes next and where it belongs, both sides post it, the receiver confirms
// what has come, and the frame follows; from there on all is as with ucx. Whether
// bytes count is decided by the frame, against the ticket: NCCL never sees a block.
//
// When the communicator fails, or moves nothing for too long, both sides give it up,
// hand-offs go on over the socket from the first unconfirmed put, and after a pause
// the sender begins another, a few times.
#pragma once

#include "common/transport/put_channel.h"

namespace baton::transport {

Transport NcclTransport();

}  // namespace baton::transport
