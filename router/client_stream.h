// SPDX-License-Identifier: Apache-2.0
// The server side of one Generate or Chat call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "router/links.h"
#include "router/live_calls.h"
#include "router/stream_writer.h"

namespace baton::router {

// Appends the tokens of `next` to those of `last` where they follow on.
bool MergeTokens(v1::GenerateResponse& last, const v1::GenerateResponse& next);

// Deletes itself when gRPC is done with it; others hold its response().
class ClientStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public StreamSink<v1::GenerateResponse> {
 public:
  // `on_cancel` is called when the client is gone. `calls` must outlive this.
  ClientStream(grpc::CallbackServerContext* context, const StreamLimits& limits, LiveCalls* calls,
               std::function<void()> on_cancel);

  std::shared_ptr<ResponseStream> response() const;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void StartWrite(const v1::GenerateResponse& event) override;
  void Finish(const absl::Status& status) override;
  void Abort() override { context_->TryCancel(); }

 private:
  class Response;

  grpc::CallbackServerContext* const context_;
  LiveCalls* const calls_;
  const std::function<void()> on_cancel_;
  grpc::ByteBuffer outgoing_;  // of the write under way
  const std::shared_ptr<Response> response_;
};

}  // namespace baton::router
