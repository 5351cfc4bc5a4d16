// SPDX-License-Identifier: Apache-2.0
// Where the Unix sockets of a decode worker stand.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton::decode_worker {

// `wanted`, or /tmp/baton-UID when it is empty; made for this user alone where
// it is absent. FAILED_PRECONDITION when it belongs to somebody else, since
// who owns the folder could put another socket in the place of ours.
absl::StatusOr<std::string> SocketFolder(const std::string& wanted);

}  // namespace baton::decode_worker
