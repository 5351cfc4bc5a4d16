// SPDX-License-Identifier: Apache-2.0
// Faults of single frames, between the checksum and the wire.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "common/transport/fault/fault_sender.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

// Counts the frames of all channels of a sender. Sender's thread.
struct FrameFaults {
  FrameFaults(const FaultPlan& faults, std::function<void()> break_all)
      : plan(faults), break_connections(std::move(break_all)) {}

  const FaultPlan plan;
  const std::function<void()> break_connections;
  uint64_t frames = 0;
  uint64_t bytes = 0;
  bool broken = false;
};

std::unique_ptr<PutChannel> MakeFaultChannel(std::shared_ptr<FrameFaults> faults,
                                             std::unique_ptr<PutChannel> inner);

}  // namespace baton::transport
