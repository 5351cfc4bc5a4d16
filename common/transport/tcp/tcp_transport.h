// SPDX-License-Identifier: Apache-2.0
// Any host: frames and bytes on one TCP connection.
#pragma once

#include "common/transport/put_channel.h"

namespace baton::transport {

Transport TcpTransport();

}  // namespace baton::transport
