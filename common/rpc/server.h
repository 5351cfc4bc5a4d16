// SPDX-License-Identifier: Apache-2.0
// What every server of the project has: credentials, limits, health, reflection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/credentials.h"

namespace baton::rpc {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";
  std::string listen_flag = "--listen";  // for errors
  TlsOptions tls;
  uint64_t max_message_bytes = 4 << 20;
  bool reflection = true;
};

// A service and the full name its health is reported under.
struct NamedService {
  std::string name;  // "baton.v1.Inference"
  grpc::Service* service = nullptr;
};

// A running server with grpc.health.v1 for "", "liveness", "readiness" and
// every service given; all are NOT_SERVING but liveness until SetReady(true).
// Thread-safe.
class Server final {
 public:
  // UNAVAILABLE when the address cannot be listened on; the message names it.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<NamedService>& services);
  // Shuts down with no grace.
  ~Server();

  int port() const { return port_; }
  std::string address() const;  // host as listened on, with the real port

  // Health of "readiness", "" and the services; "liveness" is apart.
  void SetReady(bool ready);
  void SetLive(bool live);

  // Refuses new calls and ends those still running after `grace`. The
  // services must have finished their own reactors by then: gRPC waits for
  // every reactor's OnDone without a bound.
  void Shutdown(absl::Duration grace);

 private:
  Server() = default;

  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> service_names_;
  std::string host_;
  int port_ = 0;
};

}  // namespace baton::rpc
