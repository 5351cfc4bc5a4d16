// SPDX-License-Identifier: Apache-2.0
#include "tests/common/worker/scripted_registry.h"

#include <algorithm>
#include <utility>

namespace baton::worker {

std::unique_ptr<ScriptedRegistry> ScriptedRegistry::Start(int port) {
  std::unique_ptr<ScriptedRegistry> registry(new ScriptedRegistry());
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                           &registry->port_);
  builder.RegisterService(registry.get());
  registry->server_ = builder.BuildAndStart();
  if (registry->server_ == nullptr || registry->port_ == 0) return nullptr;
  return registry;
}

ScriptedRegistry::~ScriptedRegistry() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

void ScriptedRegistry::RefuseWith(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  refusal_ = status;
}

void ScriptedRegistry::StaySilent() {
  absl::MutexLock lock(&mutex_);
  silent_ = true;
}

void ScriptedRegistry::StopReading() {
  absl::MutexLock lock(&mutex_);
  reading_ = false;
}

grpc::Status ScriptedRegistry::Attach(grpc::ServerContext* /*context*/, Stream* stream) {
  v1::WorkerMessage hello;
  if (!stream->Read(&hello)) return grpc::Status::OK;
  {
    absl::MutexLock lock(&mutex_);
    messages_.push_back(hello);
    ++attached_;
    if (!refusal_.ok()) return refusal_;
    if (!silent_) {
      v1::RouterMessage welcome;
      welcome.mutable_welcome()->set_router_id("scripted");
      welcome.mutable_welcome()->set_heartbeat_ms(50);
      welcome.mutable_welcome()->set_lease_ms(3000);
      stream->Write(welcome);
    }
    streams_.push_back({.worker_id = hello.hello().info().worker_id(), .stream = stream});
  }
  ReadAll(stream);
  absl::MutexLock lock(&mutex_);
  streams_.erase(std::find_if(streams_.begin(), streams_.end(),
                              [&](const Attached& one) { return one.stream == stream; }));
  return stopping_ ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping") : grpc::Status::OK;
}

void ScriptedRegistry::ReadAll(Stream* stream) {
  v1::WorkerMessage message;
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      const auto may_go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return reading_ || stopping_;
      };
      mutex_.Await(absl::Condition(&may_go_on));
    }
    if (!stream->Read(&message)) return;
    absl::MutexLock lock(&mutex_);
    messages_.push_back(std::move(message));
  }
}

bool ScriptedRegistry::Send(const v1::RouterMessage& message, const std::string& worker_id) {
  absl::MutexLock lock(&mutex_);
  const auto it = std::find_if(streams_.rbegin(), streams_.rend(), [&](const Attached& one) {
    return worker_id.empty() || one.worker_id == worker_id;
  });
  return it != streams_.rend() && it->stream->Write(message);
}

std::optional<v1::WorkerMessage> ScriptedRegistry::Await(
    const std::function<bool(const v1::WorkerMessage&)>& wanted, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  auto found = messages_.end();
  const auto is_there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    found = std::find_if(messages_.begin(), messages_.end(), wanted);
    return found != messages_.end();
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&is_there), timeout)) return std::nullopt;
  v1::WorkerMessage message = std::move(*found);
  messages_.erase(found);
  return message;
}

bool ScriptedRegistry::AwaitAttached(int count, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return attached_ >= count; };
  return mutex_.AwaitWithTimeout(absl::Condition(&enough), timeout);
}

int ScriptedRegistry::attached() const {
  absl::MutexLock lock(&mutex_);
  return attached_;
}

}  // namespace baton::worker
