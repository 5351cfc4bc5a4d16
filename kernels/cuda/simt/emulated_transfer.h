// SPDX-License-Identifier: Apache-2.0
// Faults of copies on the emulated device (emulated_transfer.cc), for tests.
//
// BATON_EMULATED_GPU in the environment when the plugin is loaded, or SetFaults
// later; a list such as "copy-fails-after=3":
//   map-fails             memory of other processes cannot be mapped
//   copy-fails-after=N    the copies after N cannot be started
//   copy-spoils-after=N   the copies after N flip a bit
//   copy-hangs-after=N    the copies after N do not end, until faults are set anew
#pragma once

#include <cstdint>

extern "C" {
// Counts copies from here on. Any thread.
using EmulatedSetFaults = void(const char* plan);
// Copies from device to device that have ended in this process.
using EmulatedCopies = uint64_t();
}
inline constexpr char kEmulatedSetFaults[] = "emulated_gpu_set_faults";
inline constexpr char kEmulatedCopies[] = "emulated_gpu_copies";
