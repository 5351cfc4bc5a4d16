// SPDX-License-Identifier: Apache-2.0
// The values that were asked for last.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace baton::grammar {

// Thread-safe. Values are copied out, so they should be pointers.
template <typename Key, typename Value>
class LruCache final {
 public:
  // REQUIRES: most >= 1.
  explicit LruCache(size_t most) : most_(most) {}

  std::optional<Value> Find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }

  // The value that is kept: one that another thread has put there before wins.
  Value Put(const Key& key, Value value) {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->second;
    if (entries_.size() >= most_) {
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, std::move(value));
    by_key_.emplace(key, entries_.begin());
    return entries_.front().second;
  }

 private:
  using Entries = std::list<std::pair<Key, Value>>;

  const size_t most_;
  std::mutex mutex_;  // guards all below
  Entries entries_;   // the latest first
  absl::flat_hash_map<Key, typename Entries::iterator> by_key_;
};

}  // namespace baton::grammar
