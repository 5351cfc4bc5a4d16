// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_passes.h"

#include <algorithm>
#include <cmath>

namespace baton::sampling {

namespace avx512 {
const RowPasses& Passes(const char* isa);
}
namespace avx2 {
const RowPasses& Passes(const char* isa);
}
namespace baseline {
const RowPasses& Passes(const char* isa);
}

const std::vector<const RowPasses*>& AllRowPasses() {
  static const std::vector<const RowPasses*> all = [] {
    std::vector<const RowPasses*> list;
#ifdef BATON_ROW_PASSES_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
      list.push_back(&avx512::Passes("avx512"));
    }
    if (__builtin_cpu_supports("avx2")) list.push_back(&avx2::Passes("avx2"));
#endif
    list.push_back(&baseline::Passes("baseline"));
    return list;
  }();
  return all;
}

Row BlockOf(const Row& row, size_t block) {
  const size_t begin = block * kBlock;
  return {row.logits + begin, std::min(kBlock, row.size - begin),
          row.group_max == nullptr ? nullptr : row.group_max + begin / kGroup};
}

Prefix BlockOf(const Prefix& prefix, size_t block) {
  const size_t begin = block * kBlock;
  if (prefix.last >= begin) return {prefix.key, prefix.last - begin};
  return {std::nextafter(prefix.key, std::numeric_limits<float>::infinity())};
}

const RowPasses& BestRowPasses() { return *AllRowPasses().front(); }

}  // namespace baton::sampling
