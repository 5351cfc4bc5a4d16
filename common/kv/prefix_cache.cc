// SPDX-License-Identifier: Apache-2.0
#include "common/kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::kv {
namespace {

static_assert(prefix::kBlockTokens == kBlockTokens);

// A copy of a block for fewer tokens costs about what computing them does.
constexpr uint32_t kLeastTailTokens = 4;
// Children looked at for a tail, the latest used ones first.
constexpr int kMostTailCandidates = 32;
// More uses do not keep a block longer: what was in fashion once must go some day.
constexpr uint32_t kMostUses = 16;

uint32_t CommonTokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t most = std::min(a.size(), b.size());
  const auto [end, other] = std::mismatch(a.begin(), a.begin() + most, b.begin());
  return static_cast<uint32_t>(end - a.begin());
}

}  // namespace

PrefixCache::PrefixCache(BlockPool* pool, const Options& options)
    : pool_(pool), options_(options), nodes_(pool->capacity()) {}

PrefixCache::~PrefixCache() {
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].cached) pool_->Release(BlockId{id}, Owner::kPrefixCache);
  }
}

prefix::Hash128 PrefixCache::Next(const prefix::BlockHasher& hasher,
                                  const prefix::Hash128& previous,
                                  std::span<const TokenId> tokens) const {
  prefix::Hash128 hash = hasher.Next(previous, tokens);
  if (options_.hash_bits < 128) {
    hash.high = 0;
    if (options_.hash_bits < 64) hash.low &= (uint64_t{1} << options_.hash_bits) - 1;
  }
  return hash;
}

uint32_t PrefixCache::Lookup(const prefix::Hash128& hash, TenantId tenant, uint32_t parent,
                             std::span<const TokenId> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return kNone;
  const Node& node = nodes_[found->second];
  const bool same = node.tenant == tenant && node.parent == parent &&
                    std::equal(node.tokens.begin(), node.tokens.end(), tokens.begin());
  return same ? found->second : kNone;
}

PrefixMatch PrefixCache::Find(std::string_view salt, std::span<const TokenId> tokens,
                              uint32_t most) const {
  PrefixMatch match;
  const auto tenant = tenant_ids_.find(std::string(salt));
  if (tenant == tenant_ids_.end()) return match;
  tokens = tokens.first(std::min<size_t>(tokens.size(), most));
  const prefix::BlockHasher hasher(salt);
  prefix::Hash128 hash;
  uint32_t parent = kNone;
  while (tokens.size() >= kBlockTokens) {
    const auto block = tokens.first(kBlockTokens);
    hash = Next(hasher, hash, block);
    const uint32_t node = Lookup(hash, tenant->second, parent, block);
    if (node == kNone) break;
    match.blocks.push_back(BlockId{node});
    parent = node;
    tokens = tokens.subspan(kBlockTokens);
  }
  const uint32_t children =
      parent == kNone ? tenants_.at(tenant->second).first_child : nodes_[parent].first_child;
  FindTail(children, tokens, &match);
  return match;
}

void PrefixCache::FindTail(uint32_t first_child, std::span<const TokenId> rest,
                           PrefixMatch* match) const {
  uint32_t child = first_child;
  for (int i = 0; i < kMostTailCandidates && child != kNone; ++i, child = nodes_[child].next) {
    const uint32_t common = CommonTokens(rest, nodes_[child].tokens);
    if (common < kLeastTailTokens || common <= match->tail_tokens) continue;
    match->tail = BlockId{child};
    match->tail_tokens = common;
  }
}

void PrefixCache::Use(const PrefixMatch& match, uint32_t tokens) {
  ListReleased();
  ++stats_.lookups;
  stats_.lookup_tokens += tokens;
  stats_.hit_tokens += match.tokens();
  ++clock_;
  for (const BlockId block : match.blocks) Touch(static_cast<uint32_t>(block), 1);
  if (match.tail.has_value()) Touch(static_cast<uint32_t>(*match.tail), 1);
}

void PrefixCache::Insert(std::string_view salt, std::span<const TokenId> tokens,
                         std::span<const BlockId> blocks) {
  if (blocks.empty()) return;
  ListReleased();
  ++clock_;
  const TenantId tenant = TenantOf(salt);
  const prefix::BlockHasher hasher(salt);
  prefix::Hash128 hash;
  uint32_t parent = kNone;
  for (const BlockId block : blocks) {
    const auto own = tokens.first(kBlockTokens);
    tokens = tokens.subspan(kBlockTokens);
    hash = Next(hasher, hash, own);
    uint32_t node = Lookup(hash, tenant, parent, own);
    if (node != kNone) {
      Touch(node, 0);
    } else {
      // Another prefix has this hash: the one that came first stays.
      if (by_hash_.contains(hash)) break;
      Add(block, hash, tenant, parent, own);
      node = static_cast<uint32_t>(block);
    }
    parent = node;
  }
  if (tenants_.at(tenant).blocks == 0) {
    tenant_ids_.erase(tenants_.at(tenant).salt);
    tenants_.erase(tenant);
  }
}

PrefixCache::TenantId PrefixCache::TenantOf(std::string_view salt) {
  const auto [found, is_new] = tenant_ids_.try_emplace(std::string(salt), next_tenant_);
  if (is_new) tenants_[next_tenant_++].salt = std::string(salt);
  return found->second;
}

uint32_t& PrefixCache::FirstChild(TenantId tenant, uint32_t parent) {
  return parent == kNone ? tenants_.at(tenant).first_child : nodes_[parent].first_child;
}

void PrefixCache::Add(BlockId block, const prefix::Hash128& hash, TenantId tenant, uint32_t parent,
                      std::span<const TokenId> tokens) {
  const auto id = static_cast<uint32_t>(block);
  pool_->Retain(block, Owner::kPrefixCache);
  Node& node = nodes_[id];
  node = Node();
  node.hash = hash;
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  node.tenant = tenant;
  node.parent = parent;
  node.depth = parent == kNone ? 0 : nodes_[parent].depth + 1;
  node.cached = true;
  by_hash_.emplace(hash, id);
  ++tenants_.at(tenant).blocks;
  ++size_;
  Link(id);
  if (parent != kNone) List(parent);
  Touch(id, 1);
  if (options_.journal != nullptr) options_.journal->Add(prefix::DigestOf(hash));
}

double PrefixCache::Cost(const Node& node) const {
  return 1 + static_cast<double>(node.depth) * kBlockTokens / options_.double_cost_position;
}

void PrefixCache::Touch(uint32_t id, uint32_t uses) {
  Node& node = nodes_[id];
  if (node.listed) evictable_.erase({node.rank, node.last_use, id});
  node.listed = false;
  node.uses = std::min(node.uses + uses, kMostUses);
  node.rank = age_ + node.uses * Cost(node);
  node.last_use = clock_;
  if (FirstChild(node.tenant, node.parent) != id) {
    Unlink(id);
    Link(id);
  }
  List(id);
}

void PrefixCache::Link(uint32_t id) {
  Node& node = nodes_[id];
  uint32_t& first = FirstChild(node.tenant, node.parent);
  node.previous = kNone;
  node.next = first;
  if (first != kNone) nodes_[first].previous = id;
  first = id;
}

void PrefixCache::Unlink(uint32_t id) {
  const Node& node = nodes_[id];
  if (node.next != kNone) nodes_[node.next].previous = node.previous;
  if (node.previous != kNone) {
    nodes_[node.previous].next = node.next;
  } else {
    FirstChild(node.tenant, node.parent) = node.next;
  }
}

void PrefixCache::List(uint32_t id) {
  Node& node = nodes_[id];
  const bool can_go = node.first_child == kNone && pool_->CacheOnly(BlockId{id});
  if (can_go == node.listed) return;
  if (can_go) {
    evictable_.insert({node.rank, node.last_use, id});
  } else {
    evictable_.erase({node.rank, node.last_use, id});
  }
  node.listed = can_go;
}

void PrefixCache::ListReleased() {
  for (const BlockId block : pool_->TakeReleased()) {
    const auto id = static_cast<uint32_t>(block);
    if (nodes_[id].cached) List(id);
  }
}

bool PrefixCache::MakeFree(uint32_t wanted) {
  if (pool_->free_blocks() >= wanted) return true;
  if (pool_->free_blocks() + pool_->cache_only() < wanted) return false;
  ListReleased();
  while (pool_->free_blocks() < wanted && !evictable_.empty()) {
    const uint32_t id = evictable_.begin()->node;
    List(id);  // somebody may have taken hold of it
    if (nodes_[id].listed) Evict(id);
  }
  return pool_->free_blocks() >= wanted;
}

void PrefixCache::Moved(BlockId from, BlockId to) {
  const auto old_id = static_cast<uint32_t>(from), id = static_cast<uint32_t>(to);
  if (!nodes_[old_id].cached) return;
  Node& node = nodes_[id];
  node = std::exchange(nodes_[old_id], Node());
  if (node.listed) evictable_.erase({node.rank, node.last_use, old_id});
  node.listed = false;
  by_hash_[node.hash] = id;
  if (node.next != kNone) nodes_[node.next].previous = id;
  if (node.previous != kNone) {
    nodes_[node.previous].next = id;
  } else {
    FirstChild(node.tenant, node.parent) = id;
  }
  for (uint32_t child = node.first_child; child != kNone; child = nodes_[child].next) {
    nodes_[child].parent = id;
  }
  List(id);
}

std::vector<TokenId> PrefixCache::TokensTo(uint32_t id) const {
  std::vector<TokenId> tokens(size_t{nodes_[id].depth + 1} * kBlockTokens);
  auto begin = tokens.end();
  for (; id != kNone; id = nodes_[id].parent) {
    begin -= kBlockTokens;
    std::copy(nodes_[id].tokens.begin(), nodes_[id].tokens.end(), begin);
  }
  return tokens;
}

void PrefixCache::Spill() const {
  if (!options_.evicted) return;
  std::vector<uint32_t> order;
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].cached) order.push_back(id);
  }
  std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    return std::pair(nodes_[a].rank, nodes_[b].depth) < std::pair(nodes_[b].rank, nodes_[a].depth);
  });
  for (const uint32_t id : order) options_.evicted(BlockId{id}, nodes_[id].hash, TokensTo(id));
}

void PrefixCache::Evict(uint32_t id) {
  if (options_.evicted) options_.evicted(BlockId{id}, nodes_[id].hash, TokensTo(id));
  Node& node = nodes_[id];
  const uint32_t parent = node.parent;
  const TenantId tenant = node.tenant;
  age_ = std::max(age_, node.rank);
  evictable_.erase({node.rank, node.last_use, id});
  Unlink(id);
  by_hash_.erase(node.hash);
  if (options_.journal != nullptr) options_.journal->Remove(prefix::DigestOf(node.hash));
  node = Node();
  --size_;
  ++stats_.evictions;
  pool_->Release(BlockId{id}, Owner::kPrefixCache);
  if (parent != kNone) List(parent);
  if (--tenants_.at(tenant).blocks > 0) return;
  tenant_ids_.erase(tenants_.at(tenant).salt);
  tenants_.erase(tenant);
}

absl::Status PrefixCache::CheckNode(uint32_t id) const {
  const Node& node = nodes_[id];
  const auto broken = [id](std::string_view what) {
    return absl::InternalError(absl::StrCat("cached block ", id, ": ", std::string(what)));
  };
  const auto found = by_hash_.find(node.hash);
  if (found == by_hash_.end() || found->second != id) return broken("its hash leads elsewhere");
  if (node.parent != kNone && !nodes_[node.parent].cached) return broken("its parent is gone");
  if (node.parent != kNone && nodes_[node.parent].depth + 1 != node.depth) {
    return broken("its depth is not its parent's plus one");
  }
  const bool can_go = node.first_child == kNone && pool_->CacheOnly(BlockId{id});
  if (can_go && !node.listed) return broken("it could be evicted and is not listed");
  if (node.listed != evictable_.contains({node.rank, node.last_use, id})) {
    return broken("it is listed wrongly");
  }
  return absl::OkStatus();
}

absl::Status PrefixCache::CheckIntegrity() {
  ListReleased();
  uint32_t cached = 0;
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    if (!nodes_[id].cached) continue;
    ++cached;
    if (absl::Status status = CheckNode(id); !status.ok()) return status;
  }
  if (cached != size_ || cached != pool_->held_by(Owner::kPrefixCache) ||
      cached != by_hash_.size()) {
    return absl::InternalError(absl::StrCat("the prefix cache has ", cached, " blocks, counts ",
                                            size_, ", names ", by_hash_.size(), " and holds ",
                                            pool_->held_by(Owner::kPrefixCache)));
  }
  return absl::OkStatus();
}

}  // namespace baton::kv
