// SPDX-License-Identifier: Apache-2.0
// A sender that misbehaves on purpose, for tests of what stands around it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/transport/kv_transport.h"

namespace baton::transport {

// Puts and frames are counted from 1 over all hand-offs of the sender; 0 means
// that the fault does not happen.
struct FaultPlan {
  // Put calls.
  uint64_t delay_put = 0;  // begins `delay` late, and what follows it with it
  absl::Duration delay = absl::Milliseconds(500);
  uint64_t fail_put = 0;  // is not sent; its callback hears `failure`
  absl::Status failure = absl::InternalError("injected failure of a put");
  uint64_t drop_put = 0;  // is not sent; its callback hears CANCELLED when the writer ends
  // Frames of Puts.
  uint64_t corrupt_frame = 0;   // one bit flips after the checksum was taken
  uint64_t truncate_frame = 0;  // its last slice is missing
  // The connection is cut once so many KV bytes went out; once.
  uint64_t kill_after_bytes = 0;
  // What the bytes of ucx or nccl go by fails then, while their socket lives.
  uint64_t lose_path_after_bytes = 0;
};

// Writers must go before the sender. `sender` must come from MakeSender for faults of frames and
// connections; otherwise INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<KvSender>> MakeFaultySender(std::unique_ptr<KvSender> sender,
                                                           const FaultPlan& plan);

}  // namespace baton::transport
