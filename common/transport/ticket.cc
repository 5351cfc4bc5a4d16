// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ticket.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/transport/slice_digest.h"

namespace baton::transport {

Ticket::Ticket(uint64_t epoch, Grant grant, const kv::KvLayout& layout, size_t wire_bytes)
    : id_(RandomBytes(kTicketIdBytes)),
      epoch_(epoch),
      grant_(std::move(grant)),
      layers_(layout.layers),
      wire_bytes_(wire_bytes),
      slice_bytes_(layout.LayerBytes()),
      block_count_(grant_.first_block + static_cast<uint32_t>(grant_.blocks.size())),
      landed_(grant_.blocks.size() * layers_),
      crc_(landed_.size()) {}

absl::Status Ticket::CheckIdentity(const std::string& id, uint64_t epoch) const {
  if (id != id_) return absl::FailedPreconditionError("stale ticket: the hand-off has another one");
  if (epoch != epoch_) {
    return absl::FailedPreconditionError(
        absl::StrCat("stale epoch ", epoch, ", the ticket's is ", epoch_));
  }
  return absl::OkStatus();
}

absl::Status Ticket::Check(const baton::v1::Put& put) const {
  BATON_RETURN_IF_ERROR(CheckIdentity(put.ticket_id(), put.epoch()));
  if (put.bytes() == 0 && put.layer_end() == 0 && put.block_end() == 0) return absl::OkStatus();
  if (put.layer_begin() >= put.layer_end() || put.layer_end() > layers_) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers [", put.layer_begin(), ", ", put.layer_end(), ") of ", layers_));
  }
  if (put.block_begin() >= put.block_end() || put.block_end() > block_count_ ||
      put.block_begin() < grant_.first_block) {
    return absl::InvalidArgumentError(absl::StrCat("blocks [", put.block_begin(), ", ",
                                                   put.block_end(), "), wanted are [",
                                                   grant_.first_block, ", ", block_count_, ")"));
  }
  // Both factors are bounded by the grant: no overflow.
  const uint64_t slices =
      uint64_t{put.block_end() - put.block_begin()} * (put.layer_end() - put.layer_begin());
  if (put.bytes() != slices * wire_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("put of ", put.bytes(), " bytes, its range has ", slices * wire_bytes_));
  }
  return absl::OkStatus();
}

std::byte* Ticket::Target(uint32_t block, uint32_t layer) const {
  if (landed_[Index(block, layer)]) return nullptr;
  return grant_.blocks[block - grant_.first_block] + layer * slice_bytes_;
}

absl::Status Ticket::Land(uint32_t block, uint32_t layer, uint32_t crc, Place place) {
  const size_t index = Index(block, layer);
  if (landed_[index]) {
    if (crc_[index] == crc) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("block ", block, " layer ", layer, " was put twice with different content"));
  }
  landed_[index] = true;
  if (place == Place::kPool) {
    in_pool_.resize(landed_.size());
    in_pool_[index] = true;
  }
  crc_[index] = crc;
  ++landed_count_;
  digest_ ^= DigestShare(block, layer, crc);
  return absl::OkStatus();
}

absl::Status Ticket::CheckComplete(const baton::v1::Commit& commit) const {
  if (landed_count_ != landed_.size() || commit.slices() != landed_.size()) {
    return absl::FailedPreconditionError(absl::StrCat("slices are missing: ", landed_.size(),
                                                      " wanted, ", commit.slices(), " put, ",
                                                      landed_count_, " arrived"));
  }
  if (commit.digest() != digest_) {
    return absl::FailedPreconditionError("the digest of what arrived is not the sender's");
  }
  return absl::OkStatus();
}

}  // namespace baton::transport
