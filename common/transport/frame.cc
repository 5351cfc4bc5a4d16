// SPDX-License-Identifier: Apache-2.0
#include "common/transport/frame.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton::transport {
namespace {

constexpr std::array<char, 4> kMagic = {'B', 'K', 'V', '1'};
constexpr size_t kMaxReason = 1024;

uint32_t LoadU32(const std::byte* p) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint32_t>(p[i]);
  return value;
}

void StoreU32(char* p, uint32_t value) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<char>(value >> (8 * i));
}

}  // namespace

absl::StatusOr<FrameHeader> ParseFrameHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), 4) != 0) {
    return absl::InvalidArgumentError("not a hand-off frame: the magic is not BKV1");
  }
  const FrameHeader header{LoadU32(bytes.data() + 4), LoadU32(bytes.data() + 8)};
  if (header.message_bytes > kMaxMessageBytes || header.payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame of ", header.message_bytes, " + ",
                                                   header.payload_bytes, " bytes; the limit is ",
                                                   kMaxMessageBytes, " + ", kMaxPayloadBytes));
  }
  return header;
}

std::string EncodeFrame(const baton::v1::HandoffFrame& frame, uint32_t payload_bytes) {
  const size_t message_bytes = frame.ByteSizeLong();
  std::string bytes(kFrameHeaderBytes + message_bytes, '\0');
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  StoreU32(bytes.data() + 4, static_cast<uint32_t>(message_bytes));
  StoreU32(bytes.data() + 8, payload_bytes);
  frame.SerializeWithCachedSizesToArray(
      reinterpret_cast<uint8_t*>(bytes.data() + kFrameHeaderBytes));
  return bytes;
}

baton::v1::HandoffFrame RefusedFrame(uint64_t transfer, const absl::Status& status) {
  baton::v1::HandoffFrame frame;
  frame.mutable_refused()->set_transfer(transfer);
  frame.mutable_refused()->set_code(static_cast<int32_t>(status.code()));
  // A string field must be UTF-8; a cut or foreign byte would spoil the frame.
  std::string message(status.message().substr(0, kMaxReason));
  for (char& c : message) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  frame.mutable_refused()->set_message(message);
  return frame;
}

absl::Status StatusOf(const baton::v1::Refused& refused) {
  const int32_t code = refused.code();
  const bool known = code >= 1 && code <= 16;
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      refused.message());
}

}  // namespace baton::transport
