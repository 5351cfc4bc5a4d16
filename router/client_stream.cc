// SPDX-License-Identifier: Apache-2.0
#include "router/client_stream.h"

#include <utility>

#include "common/rpc/status.h"
#include "router/clock.h"

namespace baton::router {

bool MergeTokens(v1::GenerateResponse& last, const v1::GenerateResponse& next) {
  if (!last.has_tokens() || !next.has_tokens()) return false;
  v1::Tokens& into = *last.mutable_tokens();
  const v1::Tokens& from = next.tokens();
  if (into.choice() != from.choice()) return false;
  if (into.first_index() + static_cast<uint32_t>(into.token_ids_size()) != from.first_index()) {
    return false;
  }
  into.mutable_token_ids()->MergeFrom(from.token_ids());
  into.mutable_logprobs()->MergeFrom(from.logprobs());
  into.mutable_text()->append(from.text());
  return true;
}

class ClientStream::Response final : public ResponseStream {
 public:
  Response(ClientStream* sink, const StreamLimits& limits) : writer_(sink, limits, MergeTokens) {}

  StreamWriter<v1::GenerateResponse>& writer() { return writer_; }

  void Send(v1::GenerateResponse event, absl::Time now) override {
    writer_.Send(std::move(event), now);
  }
  void Finish(const absl::Status& status, absl::Time now) override { writer_.Finish(status, now); }
  absl::Status Check(absl::Time now) const override { return writer_.Check(now); }
  bool Reap(absl::Time now) override { return writer_.Reap(now); }

 private:
  StreamWriter<v1::GenerateResponse> writer_;
};

ClientStream::ClientStream(grpc::CallbackServerContext* context, const StreamLimits& limits,
                           LiveCalls* calls, std::function<void()> on_cancel)
    : context_(context),
      calls_(calls),
      on_cancel_(std::move(on_cancel)),
      response_(std::make_shared<Response>(this, limits)) {
  calls_->Add();
}

std::shared_ptr<ResponseStream> ClientStream::response() const { return response_; }

void ClientStream::OnWriteDone(bool ok) { response_->writer().OnWriteDone(ok, SteadyNow()); }

void ClientStream::OnCancel() {
  response_->writer().OnCancel(SteadyNow());
  on_cancel_();
}

void ClientStream::OnDone() {
  response_->writer().OnDone();
  calls_->Remove();
  delete this;
}

void ClientStream::StartWrite(const v1::GenerateResponse& event) {
  const grpc::Slice slice(event.SerializeAsString());
  outgoing_ = grpc::ByteBuffer(&slice, 1);
  grpc::ServerWriteReactor<grpc::ByteBuffer>::StartWrite(&outgoing_);
}

void ClientStream::Finish(const absl::Status& status) {
  grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(rpc::ToGrpc(status));
}

}  // namespace baton::router
