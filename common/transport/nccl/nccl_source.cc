// SPDX-License-Identifier: Apache-2.0
#include "common/transport/nccl/nccl_source.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/transport/nccl/nccl_channel.h"
#include "common/transport/ring_channel.h"

namespace baton::transport {
namespace {

constexpr size_t kLostLimit = 256;

}  // namespace

NcclSource::NcclSource(std::shared_ptr<NcclRuntime> runtime, std::shared_ptr<void> place,
                       uint64_t ring_bytes, const SourceContext& context)
    : runtime_(std::move(runtime)),
      place_(std::move(place)),
      ring_(std::make_shared<NcclHostRing>(runtime_.get(), ring_bytes)),
      loop_(context.loop),
      stall_limit_(context.options.stall_limit),
      send_(context.send) {}

absl::StatusOr<const std::byte*> NcclSource::Locate(const baton::v1::Put& put,
                                                    uint32_t payload_bytes) const {
  return LocateOnRingOrSocket({data_, data_ == nullptr ? 0 : ring_->bytes}, put, payload_bytes);
}

absl::Status NcclSource::OnPath(const baton::v1::NcclPath& path) {
  const uint32_t number = path.communicator();
  if (path.unique_id().empty()) {
    if (number > attempt_) return absl::InvalidArgumentError("a communicator that is not there");
    if (number == attempt_ && std::exchange(up_, false)) line_->Close();
    return absl::OkStatus();
  }
  if (path.unique_id().size() != kNcclIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("unique_id has ", path.unique_id().size(), " bytes, not ", kNcclIdBytes));
  }
  if (number <= attempt_ || number > kMostNcclCommunicators) {
    return absl::InvalidArgumentError(absl::StrCat("communicator ", number, " after ", attempt_,
                                                   ", at most ", kMostNcclCommunicators));
  }
  attempt_ = number;
  NcclUniqueId id;
  std::memcpy(id.bytes, path.unique_id().data(), kNcclIdBytes);
  Begin(id);
  return absl::OkStatus();
}

void NcclSource::Begin(const NcclUniqueId& id) {
  const auto current = [this, attempt = attempt_] { return attempt == attempt_ && up_; };
  NcclEvents events;
  events.named = [](const NcclUniqueId&) {};
  events.up = [this](std::byte* ring) { data_ = ring; };
  events.moved = [this, current](uint64_t count) {
    if (current()) OnMoved(count);
  };
  events.lost = [this, current](const absl::Status& reason) {
    if (current()) OnLost(reason);
  };
  events.closed = [](bool) {};
  auto next = std::make_unique<NcclLine>(
      runtime_, loop_, NcclPair::Plan{NcclRank::kReceiver, ring_, stall_limit_, place_},
      std::move(events));
  // The one before may still write into the ring: it has to be gone.
  if (line_ != nullptr) line_->Close();
  next->Start(id, line_.get());
  line_ = std::move(next);
  up_ = true;
  expected_.assign(1, 0);
  expected_bytes_ = 0;
}

absl::Status NcclSource::OnExpect(const baton::v1::NcclExpect& expect) {
  if (expect.communicator() > attempt_) {
    return absl::InvalidArgumentError("bytes by a communicator that is not there");
  }
  const uint64_t size = expect.bytes();
  if (size == 0 || size > ring_->bytes || expect.ring_offset() > ring_->bytes - size) {
    return absl::InvalidArgumentError(absl::StrCat("bytes of ", size, " at ", expect.ring_offset(),
                                                   " of a ring of ", ring_->bytes));
  }
  if (expect.communicator() != attempt_ || !up_) return absl::OkStatus();  // lost meanwhile
  if (expected_bytes_ + size > ring_->bytes) {
    return absl::InvalidArgumentError("more bytes are announced than the ring holds");
  }
  expected_.push_back(size);
  expected_bytes_ += size;
  line_->Move(expect.ring_offset(), size);
  return absl::OkStatus();
}

void NcclSource::OnMoved(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    expected_bytes_ -= expected_.front();
    expected_.pop_front();
  }
  baton::v1::HandoffFrame frame;
  frame.mutable_arrived()->set_puts(count);
  frame.mutable_arrived()->set_communicator(attempt_);
  send_(frame);
}

void NcclSource::OnLost(const absl::Status& reason) {
  up_ = false;
  LogWarning("nccl is lost",
             {{"communicator", attempt_}, {"reason", std::string(reason.message())}});
  baton::v1::HandoffFrame frame;
  frame.mutable_nccl_path()->set_communicator(attempt_);
  frame.mutable_nccl_path()->set_lost(std::string(reason.message().substr(0, kLostLimit)));
  send_(frame);
}

}  // namespace baton::transport
