// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace baton::rpc {

// Keeps the threads that run callbacks of client calls until the process ends.
// To be called before the first such call of a channel that may go while a call of
// it ends: gRPC 1.51 ends these threads with the last channel that used them, and
// when that channel goes in a callback, where the call's context holds it last, a
// thread waits for itself and goes on in a queue that has been freed.
//
// Thread safety: any thread, any number of times. Sends nothing.
void KeepCallbackThreads();

}  // namespace baton::rpc
