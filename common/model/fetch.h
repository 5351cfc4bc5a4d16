// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace baton::model {

// Brings the cache line of `address` in, to be written: another core's copy
// becomes invalid now rather than when the store waits for it.
inline void FetchToWrite(const void* address) {
#if defined(__x86_64__)
  // __builtin_prefetch would mean a line to be read, unless the compiler may
  // assume PREFETCHW. CPUs that lack it take it for a NOP.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace baton::model
