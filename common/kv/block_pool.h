// SPDX-License-Identifier: Apache-2.0
// A fixed set of equal KV blocks and who holds each of them, and why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton::kv {

enum class BlockId : uint32_t {};

// Why a block is held. One holder may hold a block for several reasons.
enum class Owner : uint8_t { kRequest, kPrefixCache, kTransfer };
inline constexpr size_t kOwnerCount = 3;

// Hands out block ids and counts their holders by reason. The bytes live in an
// arena that the pool never touches.
//
// Thread safety: none; the engine thread owns the pool.
// Invariants, verified by CheckIntegrity():
//   1. a block is on the free list exactly when no owner holds it;
//   2. no block is on the free list twice;
//   3. cache_only() counts what it says.
class BlockPool final {
 public:
  explicit BlockPool(uint32_t capacity);

  // Takes `count` free blocks for `owner`: all of them or none.
  // RESOURCE_EXHAUSTED when fewer are free; the message gives both numbers.
  absl::StatusOr<std::vector<BlockId>> Allocate(uint32_t count, Owner owner);

  // Adds a holder. REQUIRES: the block is held already.
  void Retain(BlockId block, Owner owner);

  // Takes one holder away; the last one frees the block.
  // REQUIRES: `owner` holds the block.
  void Release(BlockId block, Owner owner);

  bool IsFree(BlockId block) const;
  // Whether `owner` holds the block.
  bool Holds(BlockId block, Owner owner) const {
    return holders_[static_cast<size_t>(block)][Index(owner)] > 0;
  }

  // How many times `owner` holds it.
  uint32_t Count(BlockId block, Owner owner) const {
    return holders_[static_cast<size_t>(block)][Index(owner)];
  }

  // From the next call of Allocate on, free blocks below `bound` go first.
  // O(free blocks).
  void PreferBelow(uint32_t bound);
  // Hands what `block` holds over to a free block below `bound`, with all its
  // holders: they must learn the new id, and the bytes must be copied before
  // anyone reads them. nullopt when no such block is free.
  // REQUIRES: the block is held, not as kTransfer; PreferBelow(bound) since the
  // last Release.
  std::optional<BlockId> MoveBelow(BlockId block, uint32_t bound);
  // One past the highest block handed out since ForgetHigh, or held then.
  uint32_t high() const { return high_; }
  void ForgetHigh();

  uint32_t capacity() const { return static_cast<uint32_t>(holders_.size()); }
  uint32_t free_blocks() const { return static_cast<uint32_t>(free_.size()); }

  // Number of distinct blocks that `owner` holds. O(1).
  uint32_t held_by(Owner owner) const { return held_[Index(owner)]; }

  // Whether nobody but the prefix cache holds the block: it can be had for the
  // asking.
  bool CacheOnly(BlockId block) const;
  // Number of such blocks. O(1).
  uint32_t cache_only() const { return cache_only_; }
  // Blocks that have become so since the last call; a block may have changed
  // again meanwhile, and may be named twice.
  std::vector<BlockId> TakeReleased() { return std::exchange(released_, {}); }

  // INTERNAL, naming block and invariant, when an invariant is broken.
  // O(capacity): call when idle and at the end of every test.
  absl::Status CheckIntegrity() const;

 private:
  using Counts = std::array<uint32_t, kOwnerCount>;  // indexed by Owner

  static size_t Index(Owner owner) { return static_cast<size_t>(owner); }
  Counts& counts(BlockId block) { return holders_[static_cast<size_t>(block)]; }

  std::vector<Counts> holders_;  // [capacity]
  std::vector<BlockId> free_;    // used as a stack: warm blocks first
  Counts held_{};                // distinct blocks per owner
  uint32_t cache_only_ = 0;
  std::vector<BlockId> released_;
  uint32_t high_ = 0;
};

}  // namespace baton::kv
