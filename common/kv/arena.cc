// SPDX-License-Identifier: Apache-2.0
#include "common/kv/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/system_error.h"
#include "common/kv/memory_budget.h"

namespace baton::kv {
namespace {

constexpr size_t kAlignment = size_t{2} << 20;  // one huge page

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string Arithmetic(const KvLayout& layout, uint32_t blocks) {
  const size_t scale = KvScaleBytes(layout.type);
  return absl::StrFormat(
      "the KV pool needs %.1f MiB (%u blocks of %u tokens x %u layers x 2 x %u KV heads x "
      "head size %u x %u bytes%s)",
      static_cast<double>(layout.BlockBytes()) * blocks / (1 << 20), blocks, kBlockTokens,
      layout.layers, layout.kv_heads, layout.head_dim, KvTypeBytes(layout.type),
      scale == 0 ? "" : absl::StrFormat(" + %u of scale per head", scale));
}

// Maps `bytes` (a multiple of kAlignment) aligned to kAlignment, or null.
std::byte* MapAligned(size_t bytes) {
  void* mapping =
      mmap(nullptr, bytes + kAlignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(mapping);
  const size_t before = (kAlignment - reinterpret_cast<uintptr_t>(start) % kAlignment) % kAlignment;
  // Only the aligned middle is kept.
  if (before > 0) munmap(start, before);
  munmap(start + before + bytes, kAlignment - before);
  return start + before;
}

}  // namespace

absl::StatusOr<KvArena> KvArena::Create(const KvLayout& layout, uint32_t blocks) {
  const size_t block_bytes = layout.BlockBytes();
  if (blocks == 0 || block_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an empty KV pool: ", blocks, " blocks of ", block_bytes, " bytes"));
  }
  if (block_bytes > (std::numeric_limits<size_t>::max() - 2 * kAlignment) / blocks) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Arithmetic(layout, blocks), ", more than can be addressed"));
  }
  const size_t bytes = (block_bytes * blocks + kAlignment - 1) / kAlignment * kAlignment;
  const MemoryBudget budget = ReadMemoryBudget();
  if (bytes > budget.available_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s; %.1f MiB are available (%s)", Arithmetic(layout, blocks),
                        Mib(budget.available_bytes), budget.source));
  }
  std::byte* data = MapAligned(bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Arithmetic(layout, blocks), "; mapping them failed: ", ErrnoText(errno)));
  }
  // A hint: without huge pages everything works, only slower.
  madvise(data, bytes, MADV_HUGEPAGE);
  return KvArena(layout, blocks, data, bytes);
}

KvArena::KvArena(const KvLayout& layout, uint32_t blocks, std::byte* data, size_t mapped_bytes)
    : layout_(layout),
      blocks_(blocks),
      data_(data),
      mapped_bytes_(mapped_bytes),
      block_bytes_(layout.BlockBytes()),
      layer_bytes_(layout.LayerBytes()) {}

KvArena::KvArena(KvArena&& other) noexcept { *this = std::move(other); }

KvArena& KvArena::operator=(KvArena&& other) noexcept {
  // The other object unmaps what this one held.
  std::swap(layout_, other.layout_);
  std::swap(blocks_, other.blocks_);
  std::swap(data_, other.data_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(block_bytes_, other.block_bytes_);
  std::swap(layer_bytes_, other.layer_bytes_);
  std::swap(mirror_, other.mirror_);
  return *this;
}

void KvArena::CopyBlock(BlockId from, BlockId to) const {
  if (mirror_ != nullptr) return mirror_->Copy(*this, from, to);
  std::memcpy(Layer(to, 0), Layer(from, 0), block_bytes_);
}

size_t KvArena::Discard(BlockId first, uint32_t count) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = static_cast<size_t>(first) * block_bytes_;
  const size_t end = begin + count * block_bytes_;
  size_t from = (begin + kAlignment - 1) / kAlignment * kAlignment;
  size_t to = end / kAlignment * kAlignment;
  if (from >= to) {
    from = (begin + page - 1) / page * page;
    to = end / page * page;
  }
  if (from >= to) return 0;
  if (mirror_ != nullptr) mirror_->BeforeDiscard(first, count);
  if (madvise(data_ + from, to - from, MADV_DONTNEED) != 0) return 0;
  return to - from;
}

uint32_t KvArena::FillHugePages(uint32_t blocks) const {
  const size_t pages = (blocks * block_bytes_ + kAlignment - 1) / kAlignment;
  return static_cast<uint32_t>(std::min<size_t>(blocks_, pages * kAlignment / block_bytes_));
}

KvArena::~KvArena() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
}

}  // namespace baton::kv
