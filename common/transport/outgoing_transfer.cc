// SPDX-License-Identifier: Apache-2.0
#include "common/transport/outgoing_transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/transport/frame.h"
#include "common/transport/sampling_state.h"
#include "common/transport/ticket.h"

namespace baton::transport {
namespace {

// A prompt of more blocks than this is a mistake, not a prompt.
constexpr uint32_t kMaxBlocks = 1 << 24;

}  // namespace

OutgoingTransfer::OutgoingTransfer(ReserveRequest request, const OutgoingFormat* format,
                                   Done granted)
    : request_(std::move(request)), format_(format), granted_(std::move(granted)) {}

absl::Status OutgoingTransfer::AddPut(const PutRange& range, PutSources sources, Done done) {
  if (ended_) {
    done(end_status_);
    return absl::OkStatus();
  }
  puts_.push_back(
      {range, std::move(sources), std::move(done), range.block_begin, range.layer_begin});
  const PutCall& put = puts_.back();
  if (commit_) return absl::FailedPreconditionError("a put after the commit");
  if (range.layer_begin > range.layer_end || range.layer_end > format_->layout.layers ||
      range.block_begin > range.block_end || range.block_end > kMaxBlocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a put of layers [", range.layer_begin, ", ", range.layer_end, ") of ",
        format_->layout.layers, " and blocks [", range.block_begin, ", ", range.block_end, ")"));
  }
  const uint64_t slices =
      uint64_t{range.block_end - range.block_begin} * (range.layer_end - range.layer_begin);
  const auto& [spans, checksums] = put.sources;
  const bool sizes_fit = std::all_of(spans.begin(), spans.end(), [&](const auto& s) {
    return s.size() == format_->layout.LayerBytes();
  });
  if (spans.size() != slices || !sizes_fit || (!checksums.empty() && checksums.size() != slices)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a put of ", slices, " slices of ", format_->layout.LayerBytes(), " bytes with ",
        spans.size(), " sources and ", checksums.size(), " checksums"));
  }
  return absl::OkStatus();
}

absl::Status OutgoingTransfer::AddCommit(const CommitState& state, Done done) {
  if (ended_) {
    done(end_status_);
    return absl::OkStatus();
  }
  if (commit_) {
    absl::Status twice = absl::FailedPreconditionError("a second commit");
    done(twice);
    return twice;
  }
  commit_ = CommitCall{state, std::move(done)};
  return absl::OkStatus();
}

absl::Status OutgoingTransfer::Grant(const baton::v1::TicketGranted& granted) {
  if (this->granted() || granted.ticket_id().size() != kTicketIdBytes ||
      granted.first_block() > granted.block_count() ||
      granted.block_count() != request_.block_count() || granted.lease_ms() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the receiver's grant makes no sense: blocks ", granted.first_block(), " to ",
                     granted.block_count(), " of ", request_.block_count()));
  }
  ticket_id_ = granted.ticket_id();
  epoch_ = granted.epoch();
  first_block_ = granted.first_block();
  block_count_ = granted.block_count();
  lease_ = absl::Milliseconds(granted.lease_ms());
  counted_.resize(size_t{block_count_ - first_block_} * format_->layout.layers);
  if (granted_) std::exchange(granted_, nullptr)(absl::OkStatus());
  return absl::OkStatus();
}

void OutgoingTransfer::DropFinishedPuts() {
  while (!puts_.empty()) {
    PutCall& put = puts_.front();
    if (put.block < first_block_) {  // the receiver has them
      put.block = std::min(first_block_, put.range.block_end);
      put.layer = put.range.layer_begin;
    }
    const bool finished =
        put.block >= put.range.block_end || put.range.layer_begin == put.range.layer_end;
    if (!finished) return;
    Done done = std::move(put.done);
    puts_.pop_front();
    done(absl::OkStatus());
  }
}

OutgoingTransfer::Next OutgoingTransfer::Peek(size_t frame_bytes) {
  if (ended_ || in_flight || waits_for_host || !granted()) return Next::kNothing;
  DropFinishedPuts();
  if (puts_.empty()) {
    return commit_ && !commit_->taken ? Next::kCommit : Next::kNothing;
  }
  const PutCall& put = puts_.front();
  const size_t most = std::max<size_t>(1, frame_bytes / format_->wire.LayerBytes());
  const uint32_t width = put.range.layer_end - put.range.layer_begin;
  if (put.layer == put.range.layer_begin && width <= most) {
    frame_layers_ = width;
    frame_blocks_ =
        static_cast<uint32_t>(std::min<size_t>(most / width, put.range.block_end - put.block));
  } else {
    frame_layers_ = static_cast<uint32_t>(std::min<size_t>(most, put.range.layer_end - put.layer));
    frame_blocks_ = 1;
  }
  frame_slices_ = size_t{frame_layers_} * frame_blocks_;
  return Next::kPut;
}

void OutgoingTransfer::FillTicket(baton::v1::Put& put) const {
  put.set_transfer(id);
  put.set_ticket_id(ticket_id_);
  put.set_epoch(epoch_);
}

OutgoingTransfer::Sources OutgoingTransfer::Converted(Sources sources) {
  const size_t slice_bytes = format_->wire.LayerBytes();
  converted_.resize(sources.size() * slice_bytes);
  converted_slices_.clear();
  for (size_t i = 0; i < sources.size(); ++i) {
    std::byte* const to = converted_.data() + i * slice_bytes;
    format_->converter->Convert(sources[i].data(), to);
    converted_slices_.emplace_back(to, slice_bytes);
  }
  return converted_slices_;
}

size_t OutgoingTransfer::FirstSource() const {
  const PutCall& call = puts_.front();
  const uint32_t width = call.range.layer_end - call.range.layer_begin;
  return size_t{call.block - call.range.block_begin} * width +
         (call.layer - call.range.layer_begin);
}

void OutgoingTransfer::BroughtToHost() {
  waits_for_host = false;
  if (!puts_.empty()) puts_.front().sources.checksums.clear();
}

absl::Status OutgoingTransfer::PreparePut(baton::v1::Put& put, Sources& sources) {
  const PutCall& call = puts_.front();
  if (call.range.block_end > block_count_) {
    return absl::InvalidArgumentError(absl::StrCat("a put of blocks up to ", call.range.block_end,
                                                   ", the prompt has ", block_count_));
  }
  sources = std::span(call.sources.spans).subspan(FirstSource(), frame_slices_);
  if (format_->converter) sources = Converted(sources);
  FillTicket(put);
  put.set_layer_begin(call.layer);
  put.set_layer_end(call.layer + frame_layers_);
  put.set_block_begin(call.block);
  put.set_block_end(call.block + frame_blocks_);
  put.set_bytes(put_bytes());
  return absl::OkStatus();
}

void OutgoingTransfer::TakePut(baton::v1::Put& put, Sources sources) {
  PutCall& call = puts_.front();
  uint32_t crc = 0;
  const auto& known = call.sources.checksums;
  for (size_t i = 0; i < frame_slices_; ++i) {
    const uint32_t slice_crc = known.empty() ? Crc32c(sources[i]) : known[FirstSource() + i];
    crc = format_->joiner.Join(crc, slice_crc);
    CountSlice(call.block + static_cast<uint32_t>(i / frame_layers_),
               call.layer + static_cast<uint32_t>(i % frame_layers_), slice_crc);
  }
  put.set_crc32c(crc);
  taken_block_ = call.block;
  taken_layer_ = call.layer;
  taken_bytes_ = put_bytes();
  bytes.fetch_add(taken_bytes_, std::memory_order_relaxed);

  call.layer += frame_layers_;
  if (call.layer == call.range.layer_end) {
    call.layer = call.range.layer_begin;
    call.block += frame_blocks_;
  }
  in_flight = true;
}

void OutgoingTransfer::CountSlice(uint32_t block, uint32_t layer, uint32_t crc) {
  // The same slice again is the same bytes: it counts once.
  const size_t index = size_t{block - first_block_} * format_->layout.layers + layer;
  if (counted_[index]) return;
  counted_[index] = true;
  ++slices_;
  digest_ ^= DigestShare(block, layer, crc);
}

void OutgoingTransfer::TakeCommit(baton::v1::HandoffFrame& frame) {
  commit_->taken = true;
  baton::v1::Commit& commit = *frame.mutable_commit();
  commit.set_transfer(id);
  commit.set_ticket_id(ticket_id_);
  commit.set_epoch(epoch_);
  commit.set_slices(slices_);
  commit.set_digest(digest_);
  commit.set_prompt_tokens(request_.prompt_tokens);
  FillState(commit_->state, *commit.mutable_state());
}

void OutgoingTransfer::PutSent() {
  in_flight = false;
  if (!ended_) DropFinishedPuts();
}

void OutgoingTransfer::PutLost() {
  in_flight = false;
  puts_.front().block = taken_block_;
  puts_.front().layer = taken_layer_;
  bytes.fetch_sub(taken_bytes_, std::memory_order_relaxed);
}

void OutgoingTransfer::FillRenewal(baton::v1::HandoffFrame& frame) const {
  FillTicket(*frame.mutable_put());
}

void OutgoingTransfer::End(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  end_status_ = status.ok() ? absl::FailedPreconditionError("the hand-off is committed") : status;
  if (granted_) std::exchange(granted_, nullptr)(end_status_);
  for (PutCall& put : std::exchange(puts_, {})) put.done(end_status_);
  // The callbacks go with their calls: they may own what owns this.
  if (const auto commit = std::exchange(commit_, std::nullopt)) commit->done(status);
}

}  // namespace baton::transport
