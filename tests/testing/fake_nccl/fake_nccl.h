// SPDX-License-Identifier: Apache-2.0
// libfakenccl.so: what the nccl transport needs of NCCL and of a GPU, on any host.
//
// Two ranks, in one process or two, meet in a file that the unique id names. Bytes
// go through a window in it; streams are queues that move on when an event is asked
// for. As with NCCL nobody notices that the other rank is gone, and counts that do
// not fit wait for ever. Wrong use (two threads at once, an aborted communicator, a
// call while another is in progress) ends the process with a sentence.
//
// Faults: BATON_FAKE_NCCL in the environment when the library is loaded, or
// SetFaults later; a list such as "rank=0,pairs=1,hang-after=3":
//   rank=R            only communicators of that rank (else both)
//   pairs=N           only the first N of a rank (else all)
//   init-hangs        stays in progress
//   init-fails        an error at once
//   hang-after=N      what is sent or received after N never moves
//   stuck-after=N     the call after N stays in progress
//   error-after=N     asynchronous error (of the other rank) after N
//   refuse-after=N    the call after N fails at once
//   block-after=N     the call after N takes block-ms=M
#pragma once

#include <cstdint>

extern "C" {
// Counts communicators from here on; what stands keeps its faults.
using FakeNcclSetFaults = void(const char* plan);
// Sends and receives that have been completed in this process.
using FakeNcclMoves = uint64_t();
}
inline constexpr char kFakeNcclSetFaults[] = "fake_nccl_set_faults";
inline constexpr char kFakeNcclMoves[] = "fake_nccl_moves";
