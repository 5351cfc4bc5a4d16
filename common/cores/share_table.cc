// SPDX-License-Identifier: Apache-2.0
#include "common/cores/share_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/system_error.h"

namespace baton::cores {
namespace {

constexpr uint64_t kVersion = 0x4241544f4e000001;  // "BATON", then a number

absl::Status SystemError(const std::string& path, std::string_view what) {
  return absl::UnavailableError(
      absl::StrCat(path, ": cannot ", std::string(what), ": ", ErrnoText(errno)));
}

struct flock ByteLock(uint32_t byte) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// The first slot whose lock nobody holds; kSlots: none.
uint32_t TakeSlot(int file, uint32_t slots) {
  for (uint32_t i = 0; i < slots; ++i) {
    struct flock lock = ByteLock(i);
    if (fcntl(file, F_OFD_SETLK, &lock) == 0) return i;
  }
  return slots;
}

absl::Status CheckOwner(int file, const std::string& path) {
  struct stat info = {};
  if (fstat(file, &info) != 0) return SystemError(path, "be examined");
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": not a file of this user that only this user may open"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShareTable> ShareTable::Open(const std::string& path, Kind kind) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return SystemError(path, "be opened");
  void* memory = MAP_FAILED;
  const auto fail = [&](absl::Status status) {
    if (memory != MAP_FAILED) munmap(memory, sizeof(Page));
    close(file);
    return status;
  };
  if (absl::Status status = CheckOwner(file, path); !status.ok()) return fail(status);
  // Growing to the same size twice harms nobody.
  if (ftruncate(file, sizeof(Page)) != 0) return fail(SystemError(path, "be sized"));
  memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return fail(SystemError(path, "be mapped"));
  auto* page = static_cast<Page*>(memory);
  uint64_t version = 0;
  if (!page->version.compare_exchange_strong(version, kVersion) && version != kVersion) {
    return fail(absl::FailedPreconditionError(absl::StrCat(path, ": of another version")));
  }
  const uint32_t slot = TakeSlot(file, kSlots);
  if (slot == kSlots) {
    return fail(absl::ResourceExhaustedError(
        absl::StrCat(path, ": all ", kSlots, " places are taken by living workers")));
  }
  return ShareTable(file, page, slot, kind);
}

ShareTable::ShareTable(int file, Page* page, uint32_t slot, Kind kind)
    : file_(file), page_(page), slot_(slot), kind_(kind) {
  page_->slots[slot_].busy_until = 0;  // whatever a dead owner left
  page_->slots[slot_].kind = static_cast<uint32_t>(kind);
}

ShareTable::ShareTable(ShareTable&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      page_(std::exchange(other.page_, nullptr)),
      slot_(other.slot_),
      kind_(other.kind_) {}

ShareTable::~ShareTable() {
  if (page_ == nullptr) return;
  SetBusyUntil(0);
  munmap(page_, sizeof(Page));
  close(file_);
}

void ShareTable::SetBusyUntil(uint64_t time) { page_->slots[slot_].busy_until = time; }

bool ShareTable::Lives(uint32_t slot) const {
  struct flock lock = ByteLock(slot);
  return fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Busy ShareTable::Look(uint64_t now) const {
  Busy busy;
  for (uint32_t i = 0; i < kSlots; ++i) {
    const Slot& slot = page_->slots[i];
    if (i != slot_ && (slot.busy_until <= now || !Lives(i))) continue;
    const bool decode = slot.kind == static_cast<uint32_t>(Kind::kDecode);
    ++(decode ? busy.decode : busy.prefill);
    if (i < slot_ && decode == (kind_ == Kind::kDecode)) ++busy.rank;
  }
  return busy;
}

}  // namespace baton::cores
