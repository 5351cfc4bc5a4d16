// SPDX-License-Identifier: Apache-2.0
// The envelope of a hand-off frame: magic, length of the message, length of
// the payload behind it (proto/baton/v1/handoff.proto).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/handoff.pb.h"

namespace baton::transport {

inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr uint32_t kSamplingStateVersion = 2;
inline constexpr size_t kFrameHeaderBytes = 12;
// A peer that announces more is not one of ours.
inline constexpr uint32_t kMaxMessageBytes = 64 << 10;
inline constexpr uint32_t kMaxPayloadBytes = 64 << 20;

struct FrameHeader {
  uint32_t message_bytes = 0;
  uint32_t payload_bytes = 0;
};

// INVALID_ARGUMENT: other magic, or a length beyond the limits.
absl::StatusOr<FrameHeader> ParseFrameHeader(std::span<const std::byte> bytes);

// Header and message, ready to be sent; the payload follows them.
std::string EncodeFrame(const baton::v1::HandoffFrame& frame, uint32_t payload_bytes = 0);

// Refused and back. A code that is none becomes UNKNOWN; long messages are cut.
baton::v1::HandoffFrame RefusedFrame(uint64_t transfer, const absl::Status& status);
absl::Status StatusOf(const baton::v1::Refused& refused);

}  // namespace baton::transport
