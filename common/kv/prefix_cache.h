// SPDX-License-Identifier: Apache-2.0
// KV blocks that outlive their sequences, found again by what they hold.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/types.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"
#include "common/prefix/block_hash.h"
#include "common/prefix/journal.h"

namespace baton::kv {

// What a cache has of a prompt.
struct PrefixMatch {
  std::vector<BlockId> blocks;  // full ones, from position 0 on
  // A block whose first `tail_tokens` positions come next; the rest of it holds
  // something else, so it is copied and not shared.
  std::optional<BlockId> tail;
  uint32_t tail_tokens = 0;

  uint32_t tokens() const {
    return static_cast<uint32_t>(blocks.size()) * kBlockTokens + tail_tokens;
  }
};

// A tree of full blocks: a block's parent holds the tokens before it. Looked up
// by keyed chained hashes; token ids, parent and salt are compared on every
// hit, so that equal hashes of unequal prefixes cost a miss and nothing else.
//
// Eviction takes leaves that nobody else holds, by the GreedyDual-Size-Frequency
// rule (Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-
// Frequency Caching Policy", 1998) with blocks of one size: the least of
// age + uses x cost of computing it again goes first, the least recently used
// one among equals. So a parent never goes before its children, and a prefix
// that many requests share stays longest.
//
// One pool holds the KV of one model and numerics: neither is part of the name.
//
// Thread safety: none; belongs to the thread that owns the pool.
class PrefixCache final {
 public:
  struct Options {
    // From this position on attention costs as much as all else of a token, so
    // that a block there costs twice one at the start to compute again.
    uint32_t double_cost_position = 4096;
    // Bits of a hash that count; fewer make collisions, for tests.
    uint32_t hash_bits = 128;
    // Hears of what comes and goes; may be null, otherwise must outlive the cache.
    prefix::Journal* journal = nullptr;
    // Is given a block that goes, with the hash of all tokens up to its end. May be empty.
    std::function<void(BlockId block, const prefix::Hash128& hash, std::span<const TokenId> tokens)>
        evicted = {};
  };
  struct Stats {
    uint64_t lookups = 0;
    uint64_t lookup_tokens = 0;
    uint64_t hit_tokens = 0;
    uint64_t evictions = 0;  // blocks
  };

  // `pool` must outlive the cache, which holds its blocks as kPrefixCache.
  PrefixCache(BlockPool* pool, const Options& options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest prefix of `tokens` that is here, of at most `most` tokens. The
  // blocks are not held for the caller: retain them before anything is evicted.
  PrefixMatch Find(std::string_view salt, std::span<const TokenId> tokens, uint32_t most) const;
  // The match is made use of, for a prompt of `tokens` tokens: counts it.
  // REQUIRES: its blocks have been held since Find.
  void Use(const PrefixMatch& match, uint32_t tokens);

  // Keeps `blocks`, the KV of `tokens` (kBlockTokens each), but for those of
  // which it has an equal one. REQUIRES: the caller holds the blocks, they are
  // complete, and nobody writes into them any more.
  void Insert(std::string_view salt, std::span<const TokenId> tokens,
              std::span<const BlockId> blocks);

  // Evicts until `wanted` blocks of the pool are free; false when others hold
  // too many. O(log n) for each block.
  bool MakeFree(uint32_t wanted);

  // The pool has handed what `from` held over to `to`. O(children).
  void Moved(BlockId from, BlockId to);
  // Gives all that is cached to Options::evicted, what would be evicted last
  // last, and keeps it.
  void Spill() const;

  const Stats& stats() const { return stats_; }
  uint32_t size() const { return size_; }

  // INTERNAL, naming block and invariant, when tree and pool disagree. O(capacity).
  absl::Status CheckIntegrity();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  using TenantId = uint32_t;

  // Of a cached block, by block id.
  struct Node {
    prefix::Hash128 hash;
    std::array<TokenId, kBlockTokens> tokens{};
    TenantId tenant = 0;
    uint32_t parent = kNone;
    uint32_t first_child = kNone;             // most recently used first
    uint32_t next = kNone, previous = kNone;  // siblings
    uint32_t depth = 0;                       // blocks before it
    uint32_t uses = 0;
    bool cached = false;
    bool listed = false;  // in evictable_
    double rank = 0;      // order of eviction
    uint64_t last_use = 0;
  };
  struct Tenant {
    std::string salt;
    uint32_t first_child = kNone;
    uint32_t blocks = 0;
  };
  struct Evictable {
    double rank;
    uint64_t last_use;
    uint32_t node;
    friend auto operator<=>(const Evictable&, const Evictable&) = default;
  };

  prefix::Hash128 Next(const prefix::BlockHasher& hasher, const prefix::Hash128& previous,
                       std::span<const TokenId> tokens) const;
  // The node of this block of tokens behind `parent`; kNone when there is none.
  uint32_t Lookup(const prefix::Hash128& hash, TenantId tenant, uint32_t parent,
                  std::span<const TokenId> tokens) const;
  void FindTail(uint32_t first_child, std::span<const TokenId> rest, PrefixMatch* match) const;
  TenantId TenantOf(std::string_view salt);
  uint32_t& FirstChild(TenantId tenant, uint32_t parent);
  void Add(BlockId block, const prefix::Hash128& hash, TenantId tenant, uint32_t parent,
           std::span<const TokenId> tokens);
  void Touch(uint32_t node, uint32_t uses);
  void Link(uint32_t node);
  void Unlink(uint32_t node);
  // Puts a node on the list of what may go, or takes it off, as it stands now.
  void List(uint32_t node);
  void ListReleased();
  void Evict(uint32_t node);
  // Of all blocks up to the end of this one.
  std::vector<TokenId> TokensTo(uint32_t node) const;
  double Cost(const Node& node) const;
  absl::Status CheckNode(uint32_t id) const;

  BlockPool* const pool_;
  const Options options_;
  std::vector<Node> nodes_;  // [capacity]
  absl::flat_hash_map<prefix::Hash128, uint32_t> by_hash_;
  absl::flat_hash_map<std::string, TenantId> tenant_ids_;
  absl::flat_hash_map<TenantId, Tenant> tenants_;
  TenantId next_tenant_ = 0;
  absl::btree_set<Evictable> evictable_;
  uint32_t size_ = 0;
  double age_ = 0;  // rank of what was evicted last
  uint64_t clock_ = 0;
  Stats stats_;
};

}  // namespace baton::kv
