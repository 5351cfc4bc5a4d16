// SPDX-License-Identifier: Apache-2.0
// What every server of the project has: credentials, limits, health, reflection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

// Channel arguments of every client of the project: keepalive, limits, no compression.
grpc::ChannelArguments DefaultChannelArguments();

struct ServerOptions {
  std::string listen = "127.0.0.1:0";
  TlsOptions tls;
  uint64_t max_message_bytes = 4 << 20;
  bool reflection = true;
};

// A running server with grpc.health.v1 for "", "liveness", "readiness" and
// every service given. Thread-safe.
class Server final {
 public:
  // UNAVAILABLE when the address is taken; the message names it.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();

  int port() const { return port_; }
  std::string address() const;  // host as listened on, with the real port
  // Health of "readiness", "" and the services; "liveness" is apart.
  void SetReady(bool ready);
  void SetLive(bool live);
  // Ends calls still running after `grace`. The services must have finished
  // their own reactors first, or the call waits for them.
  void Shutdown(absl::Duration grace);

 private:
  Server() = default;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> service_names_;
  std::string host_;
  int port_ = 0;
};

}  // namespace baton::rpc
