// SPDX-License-Identifier: Apache-2.0
#include "common/transport/incoming_put.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"

namespace baton::transport {
namespace {

constexpr size_t kScratchBytes = 64 << 10;
// Read and checksummed in one go, while it is in the cache.
constexpr size_t kBatchBytes = 256 << 10;

}  // namespace

IncomingPut::IncomingPut(IncomingFormat format)
    : format_(format),
      slice_bytes_(format_.wire_bytes),
      joiner_(slice_bytes_),
      scratch_(kScratchBytes),
      staged_slices_(format_.converter ? kBatchBytes / slice_bytes_ + 2 : 0),
      staged_(staged_slices_ * slice_bytes_) {}

std::byte* IncomingPut::Place(uint32_t block, uint32_t layer) {
  std::byte* const target = ticket_->Target(block, layer);
  if (target == nullptr || !format_.converter) return target;
  const size_t width = layer_end_ - layer_begin_;
  const size_t index = (block - block_begin_) * width + (layer - layer_begin_);
  return staged_.data() + index % staged_slices_ * slice_bytes_;
}

void IncomingPut::Begin(Ticket* ticket, const baton::v1::Put& put) {
  ticket_ = ticket;
  layer_begin_ = put.layer_begin();
  layer_end_ = put.layer_end();
  block_begin_ = put.block_begin();
  block_end_ = put.block_end();
  expected_crc_ = put.crc32c();
  block_ = block_begin_;
  layer_ = layer_begin_;
  offset_ = 0;
  slice_crc_ = 0;
  put_crc_ = 0;
  error_ = absl::OkStatus();
}

void IncomingPut::BeginDiscard() { ticket_ = nullptr; }

void IncomingPut::Drop(const Ticket* ticket) {
  if (ticket_ == ticket) ticket_ = nullptr;
}

void IncomingPut::CopyFrom(std::span<const std::byte> bytes) {
  while (!bytes.empty() && ticket_ != nullptr) {
    iovec place{};
    Targets({&place, 1});
    const size_t n = std::min(bytes.size(), static_cast<size_t>(place.iov_len));
    std::memcpy(place.iov_base, bytes.data(), n);
    Advance(n);
    bytes = bytes.subspan(n);
  }
}

size_t IncomingPut::Targets(std::span<iovec> out) {
  size_t count = 0, sum = 0;
  uint32_t block = block_, layer = layer_;
  size_t offset = offset_;
  while (ticket_ != nullptr && count < out.size() && sum < kBatchBytes && block < block_end_) {
    std::byte* const target = Place(block, layer);
    // Scratch places would lie over each other: one alone.
    if (target == nullptr && count > 0) return count;
    if (target == nullptr) break;
    out[count++] = {target + offset, slice_bytes_ - offset};
    sum += slice_bytes_ - offset;
    offset = 0;
    if (++layer == layer_end_) {
      layer = layer_begin_;
      ++block;
    }
  }
  if (count > 0) return count;
  const size_t room = ticket_ == nullptr ? kScratchBytes : slice_bytes_ - offset_;
  out[0] = {scratch_.data(), std::min(room, kScratchBytes)};
  return 1;
}

void IncomingPut::Advance(size_t bytes) {
  while (bytes > 0 && ticket_ != nullptr && block_ < block_end_) {
    std::byte* const target = Place(block_, layer_);
    const size_t n = std::min(bytes, slice_bytes_ - offset_);
    const std::byte* const filled = target == nullptr ? scratch_.data() : target + offset_;
    slice_crc_ = Crc32c({filled, n}, slice_crc_);
    offset_ += n;
    bytes -= n;
    if (offset_ == slice_bytes_) NextSlice();
  }
}

void IncomingPut::NextSlice() {
  if (format_.converter) {
    std::byte* const target = ticket_->Target(block_, layer_);
    if (target != nullptr) format_.converter->Convert(Place(block_, layer_), target);
  }
  const absl::Status landed = ticket_->Land(block_, layer_, slice_crc_);
  if (error_.ok()) error_ = landed;
  put_crc_ = joiner_.Join(put_crc_, slice_crc_);
  slice_crc_ = 0;
  offset_ = 0;
  if (++layer_ == layer_end_) {
    layer_ = layer_begin_;
    ++block_;
  }
}

absl::Status IncomingPut::Finish() {
  if (ticket_ == nullptr) return absl::OkStatus();
  ticket_ = nullptr;
  if (!error_.ok()) return error_;
  if (put_crc_ != expected_crc_) {
    return absl::FailedPreconditionError("the bytes of a put do not have its checksum");
  }
  return absl::OkStatus();
}

}  // namespace baton::transport
