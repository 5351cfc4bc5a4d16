// SPDX-License-Identifier: Apache-2.0
#include "common/worker/outbox.h"

#include <utility>

namespace baton::worker {
namespace {
constexpr size_t kAcceptedBytes = 12;
}  // namespace

void Outbox::AddAccepted(uint64_t sequence_key) {
  accepted_.push_back(sequence_key);
  bytes_ += kAcceptedBytes;
}

void Outbox::AddStep(v1::StepOutput step) {
  const size_t bytes = step.ByteSizeLong();
  bytes_ += bytes;
  if (!steps_.empty() && steps_.back().bytes + bytes <= kMergeBytes) {
    steps_.back().message.MergeFrom(step);
    steps_.back().bytes += bytes;
    return;
  }
  steps_.push_back({std::move(step), bytes});
}

bool Outbox::Next(v1::WorkerMessage* message) {
  message->Clear();
  if (hello_) {
    *message->mutable_hello() = *std::exchange(hello_, std::nullopt);
  } else if (!accepted_.empty()) {
    message->mutable_accepted()->set_sequence_key(accepted_.front());
    accepted_.pop_front();
    bytes_ -= kAcceptedBytes;
  } else if (!steps_.empty()) {
    *message->mutable_step() = std::move(steps_.front().message);
    bytes_ -= steps_.front().bytes;
    steps_.pop_front();
  } else if (heartbeat_) {
    *message->mutable_heartbeat() = *std::exchange(heartbeat_, std::nullopt);
  } else {
    return false;
  }
  return true;
}

}  // namespace baton::worker
