// SPDX-License-Identifier: Apache-2.0
#include "common/model/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace baton::model {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (data_ == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) madvise(data_.get(), rounded, MADV_HUGEPAGE);
}

void AlignedBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace baton::model
