// SPDX-License-Identifier: Apache-2.0
// How fast some work goes on several threads at once.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace baton::cli {

// Units per second over slots of 1 ms. Machines are shared: the best slot says
// what the work allows, the median what it got.
struct Rate {
  double best = 0, median = 0;
};

// Calls step(thread) again and again on `threads` threads at once, for about
// `seconds`; step does a piece of work, a few hundredths of a slot, and returns
// its units.
// The caller is thread 0. Each thread runs on a CPU of its own while that lasts:
// a busy machine would else leave several on one.
Rate MeasureRate(uint32_t threads, double seconds,
                 absl::FunctionRef<uint64_t(uint32_t thread)> step);

}  // namespace baton::cli
