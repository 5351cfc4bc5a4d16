// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured: the yardstick of the bench.
#pragma once

#include <cstddef>
#include <functional>

namespace baton::kernels::testing {

// Seconds of the fastest of many calls of `work` within about `seconds`. The
// minimum, because other processes only ever make a call slower.
double BestSeconds(const std::function<void()>& work, double seconds = 0.25);

// Operations per second of one core: 2 per multiply-add.
double PeakInt8();  // vpdpbusd
double PeakBf16();  // vdpbf16ps; vfmadd231ps where there is none
// Bytes per second that `threads` threads together get through, best of many
// slots of 4 ms within a second. step(thread) does the thread's next piece of
// work, a few hundred KiB, and returns its bytes.
double BestStream(int threads, const std::function<size_t(int)>& step);
// The same for plain reading of [data, data + bytes).
double ReadBandwidth(const std::byte* data, size_t bytes, int threads);

}  // namespace baton::kernels::testing
