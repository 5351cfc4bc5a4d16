// SPDX-License-Identifier: Apache-2.0
// TLS of servers and clients, and what every channel has in common.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/command_line.h"

namespace baton::rpc {

// Files in PEM form. Server: cert and key turn TLS on, ca demands and checks
// client certificates. Client: ca checks the server, cert and key identify.
struct TlsOptions {
  std::string cert_file, key_file, ca_file;
};

void AddTlsFlags(config::CommandLine& line, TlsOptions* tls);

// INVALID_ARGUMENT names the file that is missing or unreadable, or the flag
// that must come with another.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsOptions& tls);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsOptions& tls);

// Channel arguments of every client of the project: keepalive, reconnect
// back-off, no compression.
grpc::ChannelArguments DefaultChannelArguments();

}  // namespace baton::rpc
