// SPDX-License-Identifier: Apache-2.0
// Same host: frames on a Unix socket, bytes through a ring in shared memory.
#pragma once

#include "common/transport/put_channel.h"

namespace baton::transport {

Transport ShmTransport();

}  // namespace baton::transport
