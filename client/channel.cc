// SPDX-License-Identifier: Apache-2.0
#include "client/channel.h"

#include <fstream>
#include <sstream>
#include <string>

#include "common/base/version.h"

namespace baton::client {
namespace {

// Long prompts come back as token ids and whole conversations go out.
constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
// A router that restarts should be found again soon; gRPC's own limit is two minutes.
constexpr int kMaxReconnectBackoffMs = 2'000;

Status OptionError(const std::string& option, const std::string& problem) {
  Status status;
  status.code = StatusCode::kInvalidArgument;
  status.message = option + ": " + problem;
  status.field = option;
  return status;
}

bool ReadFile(const std::string& path, const std::string& option, std::string* text,
              Status* error) {
  if (path.empty()) return true;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    *error = OptionError(option, "cannot read " + path);
    return false;
  }
  *text = content.str();
  return true;
}

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const ClientOptions& options,
                                                          Status* error) {
  const bool identified = !options.tls_cert.empty() || !options.tls_key.empty();
  if (options.tls_ca.empty() && !identified) return grpc::InsecureChannelCredentials();
  if (options.tls_ca.empty()) {
    *error = OptionError("tls_ca", "needed with a client certificate");
    return nullptr;
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    *error = options.tls_cert.empty() ? OptionError("tls_cert", "needed with tls_key")
                                      : OptionError("tls_key", "needed with tls_cert");
    return nullptr;
  }
  grpc::SslCredentialsOptions tls;
  if (!ReadFile(options.tls_ca, "tls_ca", &tls.pem_root_certs, error) ||
      !ReadFile(options.tls_cert, "tls_cert", &tls.pem_cert_chain, error) ||
      !ReadFile(options.tls_key, "tls_key", &tls.pem_private_key, error)) {
    return nullptr;
  }
  return grpc::SslCredentials(tls);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options, Status* error) {
  const std::shared_ptr<grpc::ChannelCredentials> credentials = MakeCredentials(options, error);
  if (credentials == nullptr) return nullptr;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  // Channels with equal arguments share sockets otherwise, even between
  // clients that are meant to be apart.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetUserAgentPrefix(std::string("baton-client/") + kVersion);
  return grpc::CreateCustomChannel(options.router, credentials, arguments);
}

}  // namespace baton::client
