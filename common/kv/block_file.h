// SPDX-License-Identifier: Apache-2.0
// A second tier for cached KV blocks: a file, mapped, behind the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/base/unique_fd.h"
#include "common/kv/arena.h"
#include "common/kv/block_pool.h"
#include "common/prefix/siphash.h"

namespace baton::kv {

// Keeps blocks that a prefix cache evicts, by the hash of all tokens up to their
// end. A hit compares those tokens, and the block's checksum: damage costs a
// miss. When the file is full, what was written first goes first.
//
// Holds prompts in clear; it is made readable for its owner alone.
//
// Thread safety: none; belongs to the thread that owns the pool.
class BlockFile final {
 public:
  struct Options {
    std::string path;
    uint64_t bytes = 0;        // of the file, at most
    bool keep = false;         // false: the file is gone with the process
    uint32_t most_tokens = 0;  // of a sequence
  };
  struct Stats {
    uint64_t stored = 0, loaded = 0, damaged = 0;  // blocks
    uint64_t found_at_open = 0;
  };

  // Takes what an earlier process left when the file is of an equal layout, and
  // begins anew otherwise. INVALID_ARGUMENT: `bytes` hold no block, with the
  // arithmetic; FAILED_PRECONDITION: another process uses the file, or it holds something else;
  // RESOURCE_EXHAUSTED: the disk is full; others name the path.
  static absl::StatusOr<std::unique_ptr<BlockFile>> Open(const KvLayout& layout,
                                                         const Options& options);
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  // Copies `block` of `arena`, the last one of `prefix`, unless it is here.
  void Put(const prefix::Hash128& hash, std::span<const TokenId> prefix, const KvArena& arena,
           BlockId block);
  bool Has(const prefix::Hash128& hash, std::span<const TokenId> prefix) const;
  // Copies it back; false when it is not here, or damaged.
  bool Load(const prefix::Hash128& hash, std::span<const TokenId> prefix, const KvArena& arena,
            BlockId block);

  uint32_t slots() const { return slots_; }
  uint32_t used() const { return static_cast<uint32_t>(by_hash_.size()); }
  const Stats& stats() const { return stats_; }

 private:
  struct Slot;  // head of a slot, as it stands in the file

  BlockFile(UniqueFd fd, std::byte* data, size_t bytes, const KvLayout& layout,
            uint32_t most_tokens, uint32_t slots);
  Slot* At(uint32_t slot) const;
  TokenId* Tokens(uint32_t slot) const;
  std::span<std::byte> Payload(uint32_t slot) const;
  uint32_t HeadChecksum(uint32_t slot) const;
  bool Matches(uint32_t slot, const prefix::Hash128& hash, std::span<const TokenId> prefix) const;
  void Forget(uint32_t slot);
  void ReadSlots();

  const UniqueFd fd_;  // holds the lock
  std::byte* const data_;
  const size_t bytes_;
  const size_t payload_bytes_, slot_bytes_;
  const uint32_t most_tokens_, slots_;
  uint32_t next_ = 0;  // slot to be written next
  absl::flat_hash_map<prefix::Hash128, uint32_t> by_hash_;
  Stats stats_;
};

}  // namespace baton::kv
