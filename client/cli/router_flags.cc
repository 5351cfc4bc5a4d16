// SPDX-License-Identifier: Apache-2.0
#include "client/cli/router_flags.h"

namespace baton::cli {

void RouterFlags::Register(config::CommandLine& line) {
  line.Add("Connection", "router", &options_.router, "HOST:PORT of the router");
  line.Add("Connection", "tls-ca", &options_.tls_ca,
           "PEM file that checks the router's certificate; turns TLS on");
  line.Add("Connection", "tls-cert", &options_.tls_cert, "PEM certificate that names this client");
  line.Add("Connection", "tls-key", &options_.tls_key, "PEM private key of --tls-cert");
}

}  // namespace baton::cli
