// SPDX-License-Identifier: Apache-2.0
#include "router/registry_service.h"

#include <memory>
#include <mutex>
#include <utility>

#include "common/rpc/status.h"
#include "router/clock.h"

namespace baton::router {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::WorkerMessage, v1::RouterMessage>;

// The dispatcher's end of one attached stream. Reads and the end of the stream
// come from different threads; a read after Finish would reach a reactor that
// gRPC is about to delete, so both go through `mutex_`.
class GrpcWorkerLink final : public WorkerLink, public StreamSink<v1::RouterMessage> {
 public:
  GrpcWorkerLink(grpc::CallbackServerContext* context, Reactor* reactor,
                 v1::WorkerMessage* incoming, const StreamLimits& limits)
      : context_(context),
        incoming_(incoming),
        reactor_(reactor),
        writer_(this, limits, [](v1::RouterMessage&, const v1::RouterMessage&) { return false; }) {}

  StreamWriter<v1::RouterMessage>& writer() { return writer_; }

  void Send(v1::RouterMessage message, absl::Time now) override {
    writer_.Send(std::move(message), now);
  }
  void Close(const absl::Status& status, absl::Time now) override { writer_.Finish(status, now); }
  absl::Status Check(absl::Time now) const override { return writer_.Check(now); }
  void ReadNext() override {
    const std::lock_guard lock(mutex_);
    if (reactor_ != nullptr) reactor_->StartRead(incoming_);
  }

  // The writer calls these while the stream is open.
  void StartWrite(const v1::RouterMessage& message) override { reactor_->StartWrite(&message); }
  void Finish(const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    std::exchange(reactor_, nullptr)->Finish(rpc::ToGrpc(status));
  }
  void Abort() override { context_->TryCancel(); }

 private:
  grpc::CallbackServerContext* const context_;
  v1::WorkerMessage* const incoming_;
  std::mutex mutex_;
  Reactor* reactor_;  // null once finished
  StreamWriter<v1::RouterMessage> writer_;
};

// Deletes itself when gRPC is done with it.
class AttachCall final : public Reactor {
 public:
  AttachCall(grpc::CallbackServerContext* context, LinkId id, DispatcherThread* dispatcher,
             LiveCalls* calls, const StreamLimits& limits)
      : id_(id),
        dispatcher_(dispatcher),
        calls_(calls),
        link_(std::make_shared<GrpcWorkerLink>(context, this, &incoming_, limits)) {
    calls_->Add();
    dispatcher_->Post(
        [id, link = link_](Dispatcher& core, absl::Time now) { core.OpenLink(id, link, now); });
  }

  // The next read starts when the dispatcher has taken this message, so a
  // worker that floods is held up by flow control.
  void OnReadDone(bool ok) override {
    if (!ok) return PostClose();
    dispatcher_->Post([id = id_, message = std::exchange(incoming_, {})](
                          Dispatcher& core, absl::Time now) { core.OnMessage(id, message, now); });
  }
  void OnWriteDone(bool ok) override { link_->writer().OnWriteDone(ok, SteadyNow()); }
  void OnCancel() override {
    link_->writer().OnCancel(SteadyNow());
    PostClose();
  }
  void OnDone() override {
    link_->writer().OnDone();
    calls_->Remove();
    delete this;
  }

 private:
  void PostClose() {
    dispatcher_->Post([id = id_](Dispatcher& core, absl::Time now) { core.CloseLink(id, now); });
  }

  const LinkId id_;
  DispatcherThread* const dispatcher_;
  LiveCalls* const calls_;
  v1::WorkerMessage incoming_;
  const std::shared_ptr<GrpcWorkerLink> link_;
};

}  // namespace

Reactor* RegistryService::Attach(grpc::CallbackServerContext* context) {
  return new AttachCall(context, ++last_id_, dispatcher_, calls_, limits_);
}

}  // namespace baton::router
