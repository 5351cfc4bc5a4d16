// SPDX-License-Identifier: Apache-2.0
// Same host, workers on GPUs: frames on a Unix socket; the receiver maps the sender's
// KV pool and copies blocks out of it into its own, on the device.
#pragma once

#include "common/transport/put_channel.h"

namespace baton::transport {

Transport IpcTransport();

}  // namespace baton::transport
