// SPDX-License-Identifier: Apache-2.0
#include "common/kv/block_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/system_error.h"

namespace baton::kv {
namespace {

constexpr size_t kPage = 4096;
constexpr std::string_view kMagicName = "baton kv blocks ";
constexpr char kVersion[] = "1\n";

size_t RoundUp(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Everything that the bytes of a block depend on.
std::string Describe(const KvLayout& layout, uint32_t most_tokens, uint32_t slots) {
  return absl::StrCat(std::string(kMagicName), kVersion, layout.layers, "\n", layout.kv_heads, "\n",
                      layout.head_dim, "\n", std::string(KvTypeName(layout.type)), "\n",
                      layout.slice_layout, "\n", layout.model_fingerprint, "\n", layout.numerics_id,
                      "\n", most_tokens, "\n", slots, "\n");
}

absl::Status Failed(const std::string& what, const std::string& path, int error) {
  const std::string message = absl::StrCat(what, " ", path, ": ", ErrnoText(error));
  if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::UnavailableError(message);
}

}  // namespace

struct BlockFile::Slot {
  uint32_t head_checksum;  // of what follows and of the tokens; 0: empty
  uint32_t payload_checksum;
  uint64_t serial;  // grows with every block that is written
  prefix::Hash128 hash;
  uint32_t tokens;
  uint32_t unused;
};

absl::StatusOr<std::unique_ptr<BlockFile>> BlockFile::Open(const KvLayout& layout,
                                                           const Options& options) {
  const size_t slot =
      RoundUp(sizeof(Slot) + options.most_tokens * sizeof(TokenId)) + RoundUp(layout.BlockBytes());
  if (options.bytes < kPage + slot) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.path, ": ", options.bytes, " bytes hold no KV block; one takes ", slot,
                     " bytes with its tokens, and the head of the file ", kPage));
  }
  const auto slots =
      static_cast<uint32_t>(std::min<uint64_t>((options.bytes - kPage) / slot, UINT32_MAX / 2));
  const std::string head = Describe(layout, options.most_tokens, slots);
  if (head.size() > kPage) return absl::InvalidArgumentError("a KV layout with too long names");
  UniqueFd fd(open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) return Failed("cannot open", options.path, errno);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.path, " is used by another process; each worker needs its own"));
  }
  const size_t bytes = kPage + size_t{slots} * slot;
  struct stat stat {};
  std::string found(head.size(), '\0');
  if (fstat(fd.get(), &stat) != 0 || pread(fd.get(), found.data(), found.size(), 0) < 0) {
    return Failed("cannot read", options.path, errno);
  }
  const bool same = static_cast<size_t>(stat.st_size) == bytes && found == head;
  if (!same) {
    if (stat.st_size > 0 && !found.starts_with(kMagicName)) {
      return absl::FailedPreconditionError(
          absl::StrCat(options.path, " holds something else than KV blocks; it is left alone"));
    }
    if (ftruncate(fd.get(), 0) != 0) return Failed("cannot empty", options.path, errno);
    // Reserved now: a full disk must not be met by a store into the mapping.
    const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
    if (error != 0) return Failed("cannot reserve", options.path, error);
    if (pwrite(fd.get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size())) {
      return Failed("cannot write", options.path, errno);
    }
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return Failed("cannot map", options.path, errno);
  if (!options.keep) unlink(options.path.c_str());
  std::unique_ptr<BlockFile> file(new BlockFile(std::move(fd), static_cast<std::byte*>(data), bytes,
                                                layout, options.most_tokens, slots));
  if (same) file->ReadSlots();
  return file;
}

BlockFile::BlockFile(UniqueFd fd, std::byte* data, size_t bytes, const KvLayout& layout,
                     uint32_t most_tokens, uint32_t slots)
    : fd_(std::move(fd)),
      data_(data),
      bytes_(bytes),
      payload_bytes_(layout.BlockBytes()),
      slot_bytes_((bytes - kPage) / slots),
      most_tokens_(most_tokens),
      slots_(slots) {}

BlockFile::~BlockFile() { munmap(data_, bytes_); }

BlockFile::Slot* BlockFile::At(uint32_t slot) const {
  return reinterpret_cast<Slot*>(data_ + kPage + slot * slot_bytes_);
}

TokenId* BlockFile::Tokens(uint32_t slot) const { return reinterpret_cast<TokenId*>(At(slot) + 1); }

std::span<std::byte> BlockFile::Payload(uint32_t slot) const {
  std::byte* end = data_ + kPage + (slot + size_t{1}) * slot_bytes_;
  return {end - RoundUp(payload_bytes_), payload_bytes_};
}

// Never 0. REQUIRES: the slot's number of tokens is sound.
uint32_t BlockFile::HeadChecksum(uint32_t slot) const {
  const auto* head = reinterpret_cast<const std::byte*>(At(slot));
  const size_t bytes = sizeof(Slot) + At(slot)->tokens * sizeof(TokenId);
  const size_t skipped = sizeof(Slot::head_checksum);
  return std::max(1u, Crc32c({head + skipped, bytes - skipped}));
}

bool BlockFile::Matches(uint32_t slot, const prefix::Hash128& hash,
                        std::span<const TokenId> prefix) const {
  const Slot& head = *At(slot);
  return head.hash == hash && head.tokens == prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), Tokens(slot));
}

void BlockFile::Forget(uint32_t slot) {
  Slot& head = *At(slot);
  const auto found = by_hash_.find(head.hash);
  if (found != by_hash_.end() && found->second == slot) by_hash_.erase(found);
  head.head_checksum = 0;
}

void BlockFile::ReadSlots() {
  uint64_t latest = 0;
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    Slot& head = *At(slot);
    if (head.head_checksum == 0) continue;
    const bool sound = head.tokens > 0 && head.tokens <= most_tokens_ &&
                       head.head_checksum == HeadChecksum(slot) &&
                       by_hash_.try_emplace(head.hash, slot).second;
    if (!sound) {
      head.head_checksum = 0;
      ++stats_.damaged;
      continue;
    }
    ++stats_.found_at_open;
    if (head.serial >= latest) {
      latest = head.serial;
      next_ = (slot + 1) % slots_;
    }
  }
}

void BlockFile::Put(const prefix::Hash128& hash, std::span<const TokenId> prefix,
                    const KvArena& arena, BlockId block) {
  if (prefix.size() > most_tokens_ || by_hash_.contains(hash)) return;
  const uint32_t slot = next_;
  const uint64_t serial = At((slot + slots_ - 1) % slots_)->serial + 1;
  next_ = (slot + 1) % slots_;
  Forget(slot);
  const std::span<std::byte> payload = Payload(slot);
  arena.BeforeHostReads({&block, 1});
  std::memcpy(payload.data(), arena.Layer(block, 0), payload.size());
  Slot& head = *At(slot);
  head = {.head_checksum = 0,
          .payload_checksum = Crc32c(payload),
          .serial = serial,
          .hash = hash,
          .tokens = static_cast<uint32_t>(prefix.size()),
          .unused = 0};
  std::copy(prefix.begin(), prefix.end(), Tokens(slot));
  head.head_checksum = HeadChecksum(slot);
  by_hash_.emplace(hash, slot);
  ++stats_.stored;
}

bool BlockFile::Has(const prefix::Hash128& hash, std::span<const TokenId> prefix) const {
  const auto found = by_hash_.find(hash);
  return found != by_hash_.end() && Matches(found->second, hash, prefix);
}

bool BlockFile::Load(const prefix::Hash128& hash, std::span<const TokenId> prefix,
                     const KvArena& arena, BlockId block) {
  if (!Has(hash, prefix)) return false;
  const uint32_t slot = by_hash_.at(hash);
  const std::span<const std::byte> payload = Payload(slot);
  std::memcpy(arena.Layer(block, 0), payload.data(), payload.size());
  arena.AfterHostWrites({&block, 1});
  // Of the copy: what is used is what was checked.
  if (Crc32c({arena.Layer(block, 0), payload.size()}) != At(slot)->payload_checksum) {
    Forget(slot);
    ++stats_.damaged;
    return false;
  }
  ++stats_.loaded;
  return true;
}

}  // namespace baton::kv
