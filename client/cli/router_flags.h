// SPDX-License-Identifier: Apache-2.0
// Flags of every subcommand that talks to a router.
#pragma once

#include <memory>

#include "client/baton/client.h"
#include "common/config/command_line.h"

namespace baton::cli {

class RouterFlags final {
 public:
  void Register(config::CommandLine& line);
  std::unique_ptr<Client> Connect() const { return Client::Connect(options_); }
  const ClientOptions& options() const { return options_; }

 private:
  ClientOptions options_;
};

}  // namespace baton::cli
