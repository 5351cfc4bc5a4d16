// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kv_dump.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "baton/v1/admin.grpc.pb.h"
#include "client/channel.h"
#include "client/convert.h"

namespace baton::cli {
namespace {

// A step of the worker may take seconds; it answers between two.
constexpr std::chrono::seconds kTimeout(30);

}  // namespace

Status FetchKvDump(const ClientOptions& connection, const std::string& address, v1::KvDump* dump) {
  ClientOptions options = connection;
  options.router = address;
  Status status;
  const std::shared_ptr<grpc::Channel> channel = client::MakeChannel(options, &status);
  if (channel == nullptr) return status;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  status = client::FromGrpc(v1::Admin::NewStub(channel)->GetKvDump(&context, {}, dump));
  if (!status.ok()) status.message = absl::StrCat("worker at ", address, ": ", status.message);
  return status;
}

}  // namespace baton::cli
