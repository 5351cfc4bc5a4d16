// SPDX-License-Identifier: Apache-2.0
#include "tests/common/transport/raw_sender.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/crc32c.h"
#include "common/transport/layout_info.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

using baton::v1::HandoffFrame;

RawSender::RawSender(const Endpoint& endpoint)
    : endpoint_(endpoint), ring_(Ring::Make(kRingBytes).value()) {
  fd_ = FindTransport(endpoint.transport)->dial(endpoint.address).value();
  pollfd wait{fd_.get(), POLLOUT, 0};
  poll(&wait, 1, 5000);
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) & ~O_NONBLOCK);
}

HandoffFrame RawSender::Hello(const kv::KvLayout& layout, uint64_t incarnation) {
  HandoffFrame frame;
  baton::v1::HandoffHello& hello = *frame.mutable_hello();
  hello.set_protocol_version(kProtocolVersion);
  hello.set_sender_id("raw");
  hello.set_sender_incarnation(incarnation);
  FillLayoutInfo(layout, *hello.mutable_layout());
  if (transport() != "tcp") hello.set_ring_bytes(kRingBytes);
  hello.set_transport(transport());
  return frame;
}

void RawSender::SendHello(const HandoffFrame& hello) {
  SendBytes(EncodeFrame(hello), OwnMemory() ? ring_.fd() : -1);
}

bool RawSender::Greet(const kv::KvLayout& layout, uint64_t incarnation) {
  SendHello(Hello(layout, incarnation));
  const HandoffFrame answer = Read();
  if (transport() == "ucx" && answer.has_welcome()) {
    ucx_ = std::make_unique<RawUcx>(answer.welcome().ucx(), kRingBytes);
  }
  return answer.has_welcome();
}

void RawSender::Send(const HandoffFrame& frame) { SendBytes(EncodeFrame(frame)); }

void RawSender::SendBytes(const std::string& bytes, int pass) {
  iovec place{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (pass >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &pass, sizeof(int));
  }
  // The peer may have closed already; the test looks at what it says instead.
  [[maybe_unused]] const ssize_t n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
}

HandoffFrame RawSender::Read(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  const auto read_exactly = [&](std::string& into) {
    for (size_t have = 0; have < into.size();) {
      pollfd wait{fd_.get(), POLLIN, 0};
      const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
      if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) <= 0) return false;
      const ssize_t n = recv(fd_.get(), into.data() + have, into.size() - have, 0);
      if (n <= 0) return false;
      have += static_cast<size_t>(n);
    }
    return true;
  };
  HandoffFrame frame;
  std::string head(kFrameHeaderBytes, '\0');
  if (!read_exactly(head)) return frame;
  const auto header =
      ParseFrameHeader({reinterpret_cast<const std::byte*>(head.data()), head.size()});
  if (!header.ok()) return frame;
  std::string body(header->message_bytes, '\0');
  if (read_exactly(body)) frame.ParseFromString(body);
  return frame;
}

HandoffFrame RawSender::ReadUntil(HandoffFrame::FrameCase kind) {
  while (true) {
    HandoffFrame frame = Read();
    if (frame.frame_case() == kind || frame.frame_case() == HandoffFrame::FRAME_NOT_SET) {
      return frame;
    }
  }
}

bool RawSender::ReadsEnd() {
  std::array<char, 4096> ignored;
  while (true) {
    pollfd wait{fd_.get(), POLLIN, 0};
    if (poll(&wait, 1, 5000) <= 0) return false;
    if (recv(fd_.get(), ignored.data(), ignored.size(), 0) <= 0) return true;
  }
}

baton::v1::TicketGranted RawSender::Reserve(uint64_t transfer, const std::string& key,
                                            uint32_t tokens) {
  HandoffFrame frame;
  frame.mutable_reserve()->set_transfer(transfer);
  frame.mutable_reserve()->set_handoff_key(key);
  frame.mutable_reserve()->set_prompt_tokens(tokens);
  Send(frame);
  return ReadUntil(HandoffFrame::kGranted).granted();
}

baton::v1::Put RawSender::MakePut(const baton::v1::TicketGranted& granted, const PutRange& range,
                                  const std::string& bytes) const {
  baton::v1::Put put;
  put.set_transfer(granted.transfer());
  put.set_ticket_id(granted.ticket_id());
  put.set_epoch(granted.epoch());
  put.set_layer_begin(range.layer_begin);
  put.set_layer_end(range.layer_end);
  put.set_block_begin(range.block_begin);
  put.set_block_end(range.block_end);
  put.set_bytes(bytes.size());
  put.set_crc32c(Crc32c({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}));
  return put;
}

void RawSender::AwaitConsumed() {
  if (transport() == "cuda_ipc") ReadUntil(HandoffFrame::kConsumed);
}

// As if the memory held blocks of the put's layers alone.
void RawSender::NamePlaces(baton::v1::Put& put) const {
  const uint64_t blocks = uint64_t{put.block_end()} - put.block_begin();
  if (blocks == 0 || blocks > kRingBytes) return;
  const uint64_t each = std::min<uint64_t>(put.bytes(), kRingBytes) / blocks;
  for (uint64_t i = 0; i < blocks && i < 64; ++i) put.add_pool_offsets(i * each);
}

void RawSender::SendPut(baton::v1::Put put, const std::string& bytes) {
  HandoffFrame frame;
  *frame.mutable_put() = std::move(put);
  if (OwnMemory()) {
    std::memcpy(ring_.At(0, bytes.size()).data(), bytes.data(), bytes.size());
    if (transport() == "cuda_ipc" && frame.put().pool_offsets().empty()) {
      NamePlaces(*frame.mutable_put());
    }
    return Send(frame);
  }
  if (ucx_ != nullptr) {
    ucx_->Put(bytes);
    return Send(frame);
  }
  SendBytes(EncodeFrame(frame, static_cast<uint32_t>(bytes.size())) + bytes);
}

}  // namespace baton::transport
