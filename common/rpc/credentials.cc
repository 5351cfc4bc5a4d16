// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/credentials.h"

#include <fstream>
#include <sstream>

#include "common/base/status_macros.h"

namespace baton::rpc {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path, const char* flag) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) {
    return absl::InvalidArgumentError(std::string(flag) + ": cannot read '" + path + "'");
  }
  if (content.str().find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(std::string(flag) + ": '" + path + "' is not a PEM file");
  }
  return content.str();
}

absl::Status CheckPair(const TlsOptions& tls) {
  if (tls.cert_file.empty() == tls.key_file.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(tls.cert_file.empty() ? "--tls-key needs --tls-cert beside it"
                                                          : "--tls-cert needs --tls-key beside it");
}

}  // namespace

void AddTlsFlags(config::CommandLine& line, TlsOptions* tls) {
  line.Add("TLS", "tls-cert", &tls->cert_file,
           "Certificate chain (PEM) of this process; with --tls-key it turns TLS on");
  line.Add("TLS", "tls-key", &tls->key_file, "Private key (PEM) of --tls-cert");
  line.Add("TLS", "tls-ca", &tls->ca_file,
           "Certificate authority (PEM) that peers are checked against; servers then demand "
           "client certificates (mutual TLS)");
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsOptions& tls) {
  BATON_RETURN_IF_ERROR(CheckPair(tls));
  if (tls.cert_file.empty()) {
    if (!tls.ca_file.empty()) {
      return absl::InvalidArgumentError("--tls-ca on a server needs --tls-cert and --tls-key");
    }
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions options(
      tls.ca_file.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  BATON_ASSIGN_OR_RETURN(std::string key, ReadPem(tls.key_file, "--tls-key"));
  BATON_ASSIGN_OR_RETURN(std::string certificate, ReadPem(tls.cert_file, "--tls-cert"));
  options.pem_key_cert_pairs.push_back({std::move(key), std::move(certificate)});
  if (!tls.ca_file.empty()) {
    BATON_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(tls.ca_file, "--tls-ca"));
  }
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsOptions& tls) {
  BATON_RETURN_IF_ERROR(CheckPair(tls));
  if (tls.ca_file.empty()) {
    if (!tls.cert_file.empty()) {
      return absl::InvalidArgumentError(
          "--tls-cert on a client needs --tls-ca to check the server");
    }
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions options;
  BATON_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(tls.ca_file, "--tls-ca"));
  if (!tls.cert_file.empty()) {
    BATON_ASSIGN_OR_RETURN(options.pem_private_key, ReadPem(tls.key_file, "--tls-key"));
    BATON_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem(tls.cert_file, "--tls-cert"));
  }
  return grpc::SslCredentials(options);
}

grpc::ChannelArguments DefaultChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Bandwidth probes cost wake-ups on every stream and find nothing here.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  return arguments;
}

}  // namespace baton::rpc
