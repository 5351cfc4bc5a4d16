// SPDX-License-Identifier: Apache-2.0
// Puts whose bytes the receiver copies by itself: the session's part of it.
#include <utility>

#include "common/base/status_macros.h"
#include "common/transport/receiver_session.h"

namespace baton::transport {

// The receiver copies by itself. A put that is refused waits for its turn as well, so
// that puts are reported in their order.
void ReceiverSession::OnPull(const baton::v1::Put& put) {
  if (source_->lost_path()) return;
  Incoming* const incoming = FindOpen(put.transfer());
  absl::Status checked = absl::FailedPreconditionError("stale put: no ticket is open for it");
  std::vector<PullRun> runs;
  std::shared_ptr<PullsUnderWay> pulls;
  if (incoming != nullptr) {
    incoming->last_frame = EventLoop::Clock::now();
    pulls = incoming->pulls;
    pulls->Begin();
    checked = incoming->ticket->Check(put);
    if (checked.ok()) checked = source_->PlanPull(put, *incoming->ticket, runs);
  }
  if (!checked.ok()) {
    runs.clear();
    Refuse(put.transfer(), checked);
  }
  source_->Pull(std::move(runs), [host = host_, id = id_, put, pulls](const auto& checksums) {
    ReceiverSession* const session = host->FindSession(id);
    // What could not be copied comes again.
    if (session != nullptr && checksums.ok()) session->OnPulled(put, *checksums);
    if (pulls != nullptr) pulls->End();
  });
}

void ReceiverSession::OnPulled(const baton::v1::Put& put, std::span<const uint32_t> checksums) {
  consumed_transfer_ = put.transfer();
  consumed_ += put.bytes();
  ReportConsumed();
  Incoming* const incoming = FindOpen(put.transfer());
  if (incoming == nullptr || incoming->ticket->id() != put.ticket_id()) return;
  incoming->last_frame = EventLoop::Clock::now();
  const absl::Status landed = LandPulled(*incoming->ticket, put, checksums);
  if (!landed.ok()) Refuse(put.transfer(), landed);
}

absl::Status ReceiverSession::LandPulled(Ticket& ticket, const baton::v1::Put& put,
                                         std::span<const uint32_t> checksums) const {
  uint32_t put_crc = 0;
  size_t slice = 0;
  for (uint32_t block = put.block_begin(); block < put.block_end(); ++block) {
    for (uint32_t layer = put.layer_begin(); layer < put.layer_end(); ++layer, ++slice) {
      put_crc = joiner_->Join(put_crc, checksums[slice]);
      BATON_RETURN_IF_ERROR(ticket.Land(block, layer, checksums[slice], Ticket::Place::kPool));
    }
  }
  if (put_crc == put.crc32c()) return absl::OkStatus();
  return absl::FailedPreconditionError("the bytes of a put do not have its checksum");
}

}  // namespace baton::transport
