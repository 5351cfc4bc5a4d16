// SPDX-License-Identifier: Apache-2.0
// A worker without an engine, attached to a real router by gRPC.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "baton/v1/worker.grpc.pb.h"

namespace baton::router {

// Records what the router sends and says what the test tells it to. A decode
// worker accepts by itself. Thread-safe.
class FakeWorker final {
 public:
  // Called on the worker's thread for every Assign.
  using OnAssign = std::function<void(FakeWorker&, const v1::Assign&)>;

  FakeWorker(const std::string& router, const v1::WorkerMessage& hello, OnAssign on_assign = {})
      : on_assign_(std::move(on_assign)),
        stub_(v1::Registry::NewStub(
            grpc::CreateChannel(router, grpc::InsecureChannelCredentials()))) {
    stream_ = stub_->Attach(&context_);
    stream_->Write(hello);
    reader_ = std::thread([this] { Read(); });
  }
  ~FakeWorker() { Detach(); }

  // Breaks the stream, as a kill would.
  void Detach() {
    context_.TryCancel();
    if (reader_.joinable()) reader_.join();
  }

  void Say(const v1::WorkerMessage& message) {
    const std::lock_guard lock(write_mutex_);
    stream_->Write(message);
  }
  void Tokens(uint64_t key, uint32_t first, const std::vector<uint32_t>& ids) {
    v1::WorkerMessage message;
    v1::SequenceTokens* tokens = message.mutable_step()->add_tokens();
    tokens->set_sequence_key(key);
    tokens->set_first_index(first);
    tokens->mutable_token_ids()->Add(ids.begin(), ids.end());
    Say(message);
  }
  void End(uint64_t key, v1::FinishReason reason, bool handed_off = false) {
    v1::WorkerMessage message;
    v1::SequenceEnd* end = message.mutable_step()->add_ends();
    end->set_sequence_key(key);
    end->set_reason(reason);
    end->set_handed_off(handed_off);
    if (handed_off) end->set_transport("shm");
    Say(message);
  }

  // Waits for the state below; fails the test after a second.
  bool WaitWelcome() {
    return Wait([this] { return welcomed_; });
  }
  v1::Assign WaitAssign(size_t index = 0) {
    const bool came = Wait([&] { return assigns_.size() > index; });
    const std::lock_guard lock(mutex_);
    return came ? assigns_[index] : v1::Assign();
  }
  bool WaitCancel(uint64_t key) {
    return Wait([&] { return Contains(key); });
  }
  bool cancelled(uint64_t key) {
    const std::lock_guard lock(mutex_);
    return Contains(key);
  }
  grpc::Status WaitEnd() {
    EXPECT_TRUE(Wait([this] { return ended_; }));
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  bool Contains(uint64_t key) const {
    return std::find(cancels_.begin(), cancels_.end(), key) != cancels_.end();
  }

  template <typename Condition>
  bool Wait(Condition condition) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(BATON_SANITIZED ? 5 : 2), condition);
    EXPECT_TRUE(came) << "the router did not act in time";
    return came;
  }

  void Read() {
    v1::RouterMessage message;
    while (stream_->Read(&message)) {
      if (message.has_assign()) Handle(message.assign());
      const std::lock_guard lock(mutex_);
      if (message.has_welcome()) welcomed_ = true;
      if (message.has_assign()) assigns_.push_back(message.assign());
      if (message.has_cancel()) cancels_.push_back(message.cancel().sequence_key());
      changed_.notify_all();
    }
    const grpc::Status status = stream_->Finish();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = status;
    changed_.notify_all();
  }

  void Handle(const v1::Assign& assign) {
    v1::WorkerMessage message;
    message.mutable_accepted()->set_sequence_key(assign.sequence_key());
    Say(message);
    if (on_assign_) on_assign_(*this, assign);
  }

  const OnAssign on_assign_;
  grpc::ClientContext context_;
  const std::unique_ptr<v1::Registry::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::RouterMessage>> stream_;
  std::mutex write_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool welcomed_ = false;
  bool ended_ = false;
  grpc::Status status_;
  std::vector<v1::Assign> assigns_;
  std::vector<uint64_t> cancels_;
  std::thread reader_;
};

}  // namespace baton::router
