// SPDX-License-Identifier: Apache-2.0
// Asks workers for what they hold.
#pragma once

#include <string>

#include "baton/v1/admin.pb.h"
#include "client/baton/client.h"

namespace baton::cli {

// The dump of the worker that listens at `address`, reached with the TLS files of
// `connection`. UNAVAILABLE names the address.
Status FetchKvDump(const ClientOptions& connection, const std::string& address, v1::KvDump* dump);

}  // namespace baton::cli
