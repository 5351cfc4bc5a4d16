// SPDX-License-Identifier: Apache-2.0
// All sequences of an engine, by reference, by arrival and by deadline.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/engine/sequence.h"

namespace baton::engine {

// Owns the sequences. Thread safety: none.
class SequenceTable final {
 public:
  // Takes a new sequence and gives it its arrival number.
  // REQUIRES: no sequence of this reference is in the table.
  Sequence& Add(SequenceSpec spec, absl::Time now);
  // Null when there is none.
  Sequence* Find(const SequenceRef& ref) const;
  void Remove(Sequence& sequence);

  // Snapshots in order of arrival; they stay valid while sequences leave, for
  // those that have not left.
  template <typename Predicate>
  std::vector<Sequence*> Select(Predicate wanted) const {
    std::vector<Sequence*> selected;
    for (const auto& [arrival, sequence] : by_arrival_) {
      if (wanted(*sequence)) selected.push_back(sequence.get());
    }
    return selected;
  }

  template <typename Predicate>
  uint32_t Count(Predicate wanted) const {
    uint32_t count = 0;
    for (const auto& [arrival, sequence] : by_arrival_) count += wanted(*sequence) ? 1 : 0;
    return count;
  }

  // The earliest deadline, or the infinite future.
  absl::Time NextDeadline() const;
  // Sequences whose deadline is over; each is returned once.
  std::vector<Sequence*> TakeExpired(absl::Time now);
  // The deadline of `sequence` no longer matters.
  void ForgetDeadline(const Sequence& sequence);

  size_t size() const { return by_arrival_.size(); }
  bool empty() const { return by_arrival_.empty(); }

 private:
  std::map<uint64_t, std::unique_ptr<Sequence>> by_arrival_;
  absl::flat_hash_map<SequenceRef, Sequence*> by_ref_;
  absl::btree_set<std::pair<absl::Time, uint64_t>> deadlines_;  // with arrivals
  uint64_t next_arrival_ = 0;
};

}  // namespace baton::engine
