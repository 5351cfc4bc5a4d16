// SPDX-License-Identifier: Apache-2.0
#include "common/transport/fault/fault_sender.h"

#include <atomic>
#include <deque>
#include <utility>

#include "common/base/status_macros.h"
#include "common/transport/event_loop.h"
#include "common/transport/fault/fault_channel.h"
#include "common/transport/sender.h"

namespace baton::transport {
namespace {

// What the writers of one sender share.
struct Shared {
  FaultPlan plan;
  std::atomic<uint64_t> puts{0};
  std::shared_ptr<EventLoop> loop;  // runs the calls, so that one can be late
};

// The writer's calls in order. Loop thread, but for the inner writer's own
// thread-safe parts.
class CallQueue : public std::enable_shared_from_this<CallQueue> {
 public:
  CallQueue(std::shared_ptr<Shared> shared, std::unique_ptr<KvWriter> inner)
      : shared_(std::move(shared)), inner_(std::move(inner)) {}

  const KvWriter& inner() const { return *inner_; }

  void Put(const PutRange& range, PutSources sources, Done done) {
    const uint64_t number = ++shared_->puts;
    const FaultPlan& plan = shared_->plan;
    EventLoop::Task call = [this, range, sources = std::move(sources), done]() mutable {
      inner_->Put(range, std::move(sources), std::move(done));
    };
    if (number == plan.fail_put) call = [done, failure = plan.failure] { done(failure); };
    if (number == plan.drop_put) call = [this, done] { dropped_.push_back(done); };
    Add(std::move(call), number == plan.delay_put ? plan.delay : absl::ZeroDuration());
  }

  void Commit(const CommitState& state, Done done) {
    Add([this, state, done = std::move(done)] { inner_->Commit(state, done); },
        absl::ZeroDuration());
  }

  void Abort(const absl::Status& reason) {
    // Calls that still wait go to the inner writer, which ends them.
    late_ = false;
    inner_->Abort(reason);
    Drain();
    for (Done& done : std::exchange(dropped_, {})) {
      done(absl::CancelledError(reason.message()));
    }
  }

 private:
  struct Call {
    EventLoop::Task run;
    absl::Duration delay;
  };

  void Add(EventLoop::Task run, absl::Duration delay) {
    calls_.push_back({std::move(run), delay});
    if (!late_) Drain();
  }

  void Drain() {
    while (!calls_.empty() && !late_) {
      const absl::Duration delay = std::exchange(calls_.front().delay, absl::ZeroDuration());
      if (delay > absl::ZeroDuration()) {
        late_ = true;
        shared_->loop->After(delay, [self = shared_from_this()] {
          self->late_ = false;
          self->Drain();
        });
        return;
      }
      const EventLoop::Task run = std::move(calls_.front().run);
      calls_.pop_front();
      run();
    }
  }

  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<KvWriter> inner_;
  std::deque<Call> calls_;
  bool late_ = false;
  std::vector<Done> dropped_;
};

class FaultyWriter final : public KvWriter {
 public:
  FaultyWriter(std::shared_ptr<Shared> shared, std::unique_ptr<KvWriter> inner)
      : loop_(shared->loop),
        queue_(std::make_shared<CallQueue>(std::move(shared), std::move(inner))) {}
  ~FaultyWriter() override { Abort(absl::CancelledError("the writer is gone")); }

  void Put(const PutRange& range, PutSources sources, Done done) override {
    loop_->Post(
        [queue = queue_, range, sources = std::move(sources), done = std::move(done)]() mutable {
          queue->Put(range, std::move(sources), std::move(done));
        });
  }
  void Commit(const CommitState& state, Done done) override {
    loop_->Post([queue = queue_, state, done = std::move(done)]() mutable {
      queue->Commit(state, std::move(done));
    });
  }
  void Abort(const absl::Status& reason) override {
    loop_->Post([queue = queue_, reason] { queue->Abort(reason); });
  }
  bool prefers_pool() const override { return queue_->inner().prefers_pool(); }
  std::string transport() const override { return queue_->inner().transport(); }
  uint64_t bytes() const override { return queue_->inner().bytes(); }

 private:
  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<CallQueue> queue_;
};

class FaultySender final : public KvSender {
 public:
  FaultySender(std::unique_ptr<KvSender> inner, std::shared_ptr<Shared> shared)
      : inner_(std::move(inner)), shared_(std::move(shared)) {}
  ~FaultySender() override {
    shared_->loop->Stop();
    inner_.reset();
  }

  std::unique_ptr<KvWriter> Open(const std::vector<Endpoint>& endpoints,
                                 const ReserveRequest& request, absl::Time deadline,
                                 Done granted) override {
    return std::make_unique<FaultyWriter>(
        shared_, inner_->Open(endpoints, request, deadline, std::move(granted)));
  }

 private:
  std::unique_ptr<KvSender> inner_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvSender>> MakeFaultySender(std::unique_ptr<KvSender> sender,
                                                           const FaultPlan& plan) {
  auto shared = std::make_shared<Shared>();
  shared->plan = plan;
  BATON_ASSIGN_OR_RETURN(shared->loop, EventLoop::Make("kv-fault"));
  if (plan.corrupt_frame != 0 || plan.truncate_frame != 0 || plan.kill_after_bytes != 0 ||
      plan.lose_path_after_bytes != 0) {
    auto* const socket_sender = dynamic_cast<SocketSender*>(sender.get());
    if (socket_sender == nullptr) {
      return absl::InvalidArgumentError("faults of frames need a sender of MakeSender");
    }
    auto faults =
        std::make_shared<FrameFaults>(plan, [socket_sender] { socket_sender->BreakConnections(); });
    socket_sender->DecorateChannels([faults](std::unique_ptr<PutChannel> channel) {
      return MakeFaultChannel(faults, std::move(channel));
    });
  }
  return std::make_unique<FaultySender>(std::move(sender), std::move(shared));
}

}  // namespace baton::transport
