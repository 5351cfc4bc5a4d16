// SPDX-License-Identifier: Apache-2.0
// Unix stream sockets with a path.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

// INVALID_ARGUMENT: the path is too long. UNAVAILABLE: nobody listens there.
absl::StatusOr<UniqueFd> DialUnix(const std::string& path);

// Listens in options.socket_dir under a short name that follows from the
// receiver's id, for this user only. Replaces the file of a dead process; takes
// another name when a live one has it, such as a worker of the same id in
// another cluster. The file goes with the listener.
absl::StatusOr<Listener> ListenUnix(const ReceiverOptions& options);

}  // namespace baton::transport
