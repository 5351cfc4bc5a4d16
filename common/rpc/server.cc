// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <mutex>

#include "common/base/status_macros.h"

namespace baton::rpc {
namespace {

constexpr char kReadiness[] = "readiness";
constexpr char kLiveness[] = "liveness";
// The library's default of 8 KiB of metadata ends every call of a connection
// when one exceeds it; a larger limit keeps neighbours safe from clumsy peers.
constexpr int kMaxMetadataBytes = 64 << 10;

void EnablePlugins(bool reflection) {
  static std::once_flag health_once, reflection_once;
  std::call_once(health_once, [] { grpc::EnableDefaultHealthCheckService(true); });
  if (reflection) {
    std::call_once(reflection_once,
                   [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); });
  }
}

void SetLimits(grpc::ServerBuilder& builder, uint64_t max_message_bytes) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(max_message_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Two servers on one port would split the traffic without a word.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients may ping every 10 s, also without a call.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // A compressed message is inflated before its size is checked: only identity.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<NamedService>& services) {
  EnablePlugins(options.reflection);
  const size_t colon = options.listen.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(options.listen_flag + ": '" + options.listen +
                                      "' is not HOST:PORT, such as 127.0.0.1:8500");
  }
  BATON_ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(options.tls));
  std::unique_ptr<Server> server(new Server);
  server->host_ = options.listen.substr(0, colon);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options.listen, credentials, &server->port_);
  SetLimits(builder, options.max_message_bytes);
  for (const NamedService& named : services) {
    builder.RegisterService(named.service);
    server->service_names_.push_back(named.name);
  }
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ == 0) {
    return absl::UnavailableError("cannot listen on " + options.listen +
                                  ": the port is in use or the address is not of this machine; "
                                  "choose another " +
                                  options.listen_flag);
  }
  server->SetReady(false);
  server->SetLive(true);
  return server;
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

std::string Server::address() const { return host_ + ":" + std::to_string(port_); }

void Server::SetReady(bool ready) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", ready);
  health->SetServingStatus(kReadiness, ready);
  for (const std::string& name : service_names_) health->SetServingStatus(name, ready);
}

void Server::SetLive(bool live) {
  server_->GetHealthCheckService()->SetServingStatus(kLiveness, live);
}

void Server::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
  server_.reset();
}

}  // namespace baton::rpc
