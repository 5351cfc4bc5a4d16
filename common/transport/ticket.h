// SPDX-License-Identifier: Apache-2.0
// A receiver's permission to fill blocks it has reserved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/handoff.pb.h"
#include "common/kv/layout.h"
#include "common/transport/kv_transport.h"

namespace baton::transport {

inline constexpr size_t kTicketIdBytes = 16;

// Copies into a ticket's blocks that the receiver has started and cannot take back.
// Blocks of a hand-off that has ended are nobody else's until they are through.
// Belongs to the receiver's thread.
class PullsUnderWay {
 public:
  bool any() const { return count_ > 0; }
  void Begin() { ++count_; }
  void End() {
    if (--count_ == 0 && then_) std::exchange(then_, nullptr)();
  }
  // Runs `then` once none is under way, which may be now.
  void AtEnd(std::function<void()> then) {
    if (!any()) return then();
    then_ = std::move(then);
  }

 private:
  uint32_t count_ = 0;
  std::function<void()> then_;
};

// Knows which slices (block, layer) have landed and with what checksum.
// Belongs to the receiver's thread.
//
// Invariant: a place is handed out for a slice only until the slice has
// landed; nothing is ever written over a landed slice.
class Ticket {
 public:
  // `wire_bytes`: of one slice as it travels; the layout says what it is here.
  Ticket(uint64_t epoch, Grant grant, const kv::KvLayout& layout, size_t wire_bytes);

  const std::string& id() const { return id_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t landing_id() const { return grant_.landing_id; }
  uint32_t first_block() const { return grant_.first_block; }
  uint32_t block_count() const { return block_count_; }

  // FAILED_PRECONDITION: of another ticket or epoch, or slices that are not
  // wanted. INVALID_ARGUMENT: an empty, reversed or foreign range, or a size
  // that is not the range's. An empty Put at 0 only renews the lease.
  absl::Status Check(const baton::v1::Put& put) const;
  absl::Status CheckIdentity(const std::string& id, uint64_t epoch) const;

  // Where a slice goes; nullptr when it has landed already.
  std::byte* Target(uint32_t block, uint32_t layer) const;

  // The slice is in place, or arrived again. FAILED_PRECONDITION: again, with
  // other content.
  enum class Place : uint8_t { kBlock, kPool };
  absl::Status Land(uint32_t block, uint32_t layer, uint32_t crc, Place place = Place::kBlock);
  // Which slices have landed in the pool, [block - first_block()][layer]; empty: none.
  const std::vector<bool>& in_pool() const { return in_pool_; }

  // FAILED_PRECONDITION: slices are missing, or the digests differ.
  absl::Status CheckComplete(const baton::v1::Commit& commit) const;

 private:
  size_t Index(uint32_t block, uint32_t layer) const {
    return size_t{block - grant_.first_block} * layers_ + layer;
  }

  const std::string id_;
  const uint64_t epoch_;
  const Grant grant_;
  const uint32_t layers_;
  const size_t wire_bytes_;   // of a slice in a Put
  const size_t slice_bytes_;  // of a slice in its block
  const uint32_t block_count_;
  std::vector<bool> landed_;
  std::vector<uint32_t> crc_;
  std::vector<bool> in_pool_;
  uint64_t landed_count_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace baton::transport
