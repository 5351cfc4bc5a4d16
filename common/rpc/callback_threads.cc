// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/callback_threads.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>

namespace baton::rpc {
namespace {

// A call of a channel without credentials, which fails by itself; the channel holds
// the threads from then on.
struct Holder {
  Holder() {
    grpc::GenericStub(channel).UnaryCall(&context, "/baton/none", {}, &request, &response,
                                         [](const grpc::Status& /*failed*/) {});
  }

  const std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel("", nullptr);
  grpc::ClientContext context;
  const grpc::Slice nothing;
  grpc::ByteBuffer request{&nothing, 1}, response;
};

}  // namespace

void KeepCallbackThreads() {
  // Never destroyed: not even at the end may the threads be without it.
  static const Holder* const holder = new Holder;
  static_cast<void>(holder);
}

}  // namespace baton::rpc
