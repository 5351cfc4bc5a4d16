// SPDX-License-Identifier: Apache-2.0
// Which workers of one user on one host compute right now on the same CPUs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace baton::cores {

// Decode workers come first when cores are handed out.
enum class Kind : uint8_t { kDecode = 0, kPrefill = 1 };

// How many workers compute, the caller included, and how many of those of the
// caller's kind stand before it.
struct Busy {
  uint32_t decode = 0;
  uint32_t prefill = 0;
  uint32_t rank = 0;
};

// A page of memory that all workers map, with a slot for each.
//
// A slot belongs to the process that holds the file lock on its byte. The
// kernel drops that lock with the process, however it ends, so a slot never
// stays busy after its owner: a reader asks for the lock before it believes a
// busy slot of another.
//
// Thread safety: one thread per object.
class ShareTable final {
 public:
  static constexpr uint32_t kSlots = 64;

  // Opens or creates `path` with mode 0600 and takes a slot. RESOURCE_EXHAUSTED
  // when all are taken; FAILED_PRECONDITION for a file that is not ours or of
  // another version; UNAVAILABLE when the system refuses.
  static absl::StatusOr<ShareTable> Open(const std::string& path, Kind kind);

  ShareTable(ShareTable&& other) noexcept;
  ShareTable& operator=(ShareTable&&) = delete;
  ~ShareTable();

  uint32_t slot() const { return slot_; }
  // This worker computes from now on; until `now` of CLOCK_MONOTONIC, in
  // nanoseconds. kForever: until further notice.
  static constexpr uint64_t kForever = ~uint64_t{0};
  void SetBusyUntil(uint64_t time);
  // Counts this worker as busy.
  Busy Look(uint64_t now) const;

 private:
  // Zero-filled memory is a table of free slots.
  struct Slot {
    std::atomic<uint64_t> busy_until;
    std::atomic<uint32_t> kind;
    char padding[64 - 12];
  };
  struct Page {
    std::atomic<uint64_t> version;
    char padding[64 - 8];
    Slot slots[kSlots];
  };
  static_assert(sizeof(Slot) == 64 && std::atomic<uint64_t>::is_always_lock_free);

  ShareTable(int file, Page* page, uint32_t slot, Kind kind);
  bool Lives(uint32_t slot) const;

  int file_ = -1;
  Page* page_ = nullptr;
  uint32_t slot_ = 0;
  Kind kind_ = Kind::kDecode;
};

}  // namespace baton::cores
