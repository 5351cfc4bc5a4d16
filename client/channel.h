// SPDX-License-Identifier: Apache-2.0
// The connection to a router.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "client/baton/client.h"

namespace baton::client {

// A channel for `options`, made without waiting for the router. When a TLS
// file is missing or unreadable, returns null and sets `error` to
// INVALID_ARGUMENT naming the option.
std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options, Status* error);

}  // namespace baton::client
