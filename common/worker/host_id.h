// SPDX-License-Identifier: Apache-2.0
// Which workers can reach each other's Unix sockets and shared memory.
#pragma once

#include <string>

namespace baton::worker {

// 16 hex digits; equal for processes that see the same kernel (boot id), host
// name and mount namespace, so that a socket path means the same file to both.
// Containers of one pod differ; an operator who mounts one volume into both
// says so with --host-id.
std::string HostId();

std::string HostName();

}  // namespace baton::worker
