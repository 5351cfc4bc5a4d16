// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/machine.h"
#include "common/model/aligned_buffer.h"

namespace baton::cli {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kPiece = size_t{32} << 10;
constexpr size_t kUnroll = 256;  // bytes read in a round; divides every piece

#if defined(__x86_64__)

void ReadZmm(const std::byte* from, size_t bytes) {
  for (const std::byte* end = from + bytes; from != end; from += kUnroll) {
    asm volatile(
        "vmovdqu64 (%0), %%zmm0\nvmovdqu64 64(%0), %%zmm1\n"
        "vmovdqu64 128(%0), %%zmm2\nvmovdqu64 192(%0), %%zmm3\n" ::"r"(from)
        : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
  }
  asm volatile("vzeroupper");
}

void ReadXmm(const std::byte* from, size_t bytes) {
  for (const std::byte* end = from + bytes; from != end; from += kUnroll / 4) {
    asm volatile(
        "movdqu (%0), %%xmm0\nmovdqu 16(%0), %%xmm1\n"
        "movdqu 32(%0), %%xmm2\nmovdqu 48(%0), %%xmm3\n" ::"r"(from)
        : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
  }
}

void Read(const std::byte* from, size_t bytes) {
  static const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  avx512 ? ReadZmm(from, bytes) : ReadXmm(from, bytes);
}

#else

void Read(const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    (void)*reinterpret_cast<const volatile uint64_t*>(from + i);
  }
}

#endif

// "1024K" of a file under /sys; 0 when there is none.
uint64_t ReadKib(const std::string& path) {
  std::ifstream file(path);
  uint64_t kib = 0;
  return file >> kib ? kib << 10 : 0;
}

uint64_t BytesPerThread(MemoryLevel level, uint32_t threads, const CacheSizes& caches) {
  switch (level) {
    case MemoryLevel::kL2:
      return caches.l2 / 2;
    case MemoryLevel::kL3:
      // More than the L2 holds, or it would be that which is measured.
      return std::max(caches.l3 / 2 / threads, 2 * caches.l2);
    case MemoryLevel::kMemory:
      break;
  }
  return std::max(std::min(8 * caches.l3, 1024 * kMiB) / threads, 64 * kMiB);
}

}  // namespace

CacheSizes ReadCacheSizes() {
  CacheSizes sizes;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", index);
    int level = 0;
    std::ifstream(folder + "/level") >> level;
    if (level == 2) sizes.l2 = ReadKib(folder + "/size");
    if (level == 3) sizes.l3 = ReadKib(folder + "/size");
  }
  if (sizes.l2 == 0) sizes.l2 = kMiB;
  if (sizes.l3 == 0) sizes.l3 = 32 * kMiB;
  return sizes;
}

std::string_view MemoryLevelName(MemoryLevel level) {
  switch (level) {
    case MemoryLevel::kL2:
      return "L2";
    case MemoryLevel::kL3:
      return "L3";
    case MemoryLevel::kMemory:
      break;
  }
  return "memory";
}

Reader::Reader(MemoryLevel level, uint32_t threads, const CacheSizes& caches)
    : threads_(threads),
      share_(std::max<uint64_t>(BytesPerThread(level, threads, caches) / kPiece, 1) * kPiece),
      memory_(share_ * threads) {
  std::memset(memory_.data(), 1, memory_.size());  // pages of its own, not the one of zeros
}

Rate Reader::Measure(double seconds) const {
  struct alignas(64) Place {
    size_t offset = 0;
  };
  std::vector<Place> places(threads_);
  return MeasureRate(threads_, seconds, [&](uint32_t thread) {
    size_t& offset = places[thread].offset;
    Read(memory_.data() + thread * share_ + offset, kPiece);
    offset = (offset + kPiece) % share_;
    return uint64_t{kPiece};
  });
}

std::string_view MemoryMode(double one_thread, double all_threads) {
  const double gain = all_threads / one_thread;
  if (gain < 1.3) return "one link";
  return gain < 1.5 ? "changing" : "several links";
}

}  // namespace baton::cli
