// SPDX-License-Identifier: Apache-2.0
#include "common/prefix/journal.h"

#include <algorithm>

namespace baton::prefix {

void Journal::Add(uint64_t digest) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(digest);
  if (found != held_.end()) {
    ++found->second;
    return;
  }
  if (held_.size() >= limits_.digests) return;
  held_.emplace(digest, 1);
  Log(digest);
}

void Journal::Remove(uint64_t digest) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(digest);
  if (found == held_.end() || --found->second > 0) return;
  held_.erase(found);
  Log(digest);
}

void Journal::Log(uint64_t digest) {
  ++version_;
  log_.push_back(digest);
  if (log_.size() > limits_.log) log_.pop_front();
}

uint64_t Journal::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

Changes Journal::Since(uint64_t version) const {
  const std::lock_guard lock(mutex_);
  Changes changes;
  changes.version = version_;
  if (version == version_) return changes;
  const uint64_t missed = version_ - version;
  if (version == 0 || version > version_ || missed > log_.size()) {
    changes.reset = true;
    changes.added.reserve(held_.size());
    for (const auto& [digest, count] : held_) changes.added.push_back(digest);
    return changes;
  }
  // Where it stands now counts, once, however often it came and went.
  std::vector<uint64_t> touched(log_.end() - static_cast<ptrdiff_t>(missed), log_.end());
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const uint64_t digest : touched) {
    (held_.contains(digest) ? changes.added : changes.removed).push_back(digest);
  }
  return changes;
}

}  // namespace baton::prefix
