// SPDX-License-Identifier: Apache-2.0
#include "common/transport/frame_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system_error.h"

namespace baton::transport {
namespace {

// Small, so that little of a payload behind a frame takes the detour through
// the buffer.
constexpr size_t kReadBytes = 4 << 10;
// After so much of one connection the others get their turn.
constexpr size_t kReadBudget = 4 << 20;
constexpr size_t kMaxVectors = 32;
// A peer that does not read what it is told is cut off here.
constexpr size_t kMaxQueuedBytes = 4 << 20;

absl::Status Lost(int error) {
  return absl::UnavailableError(absl::StrCat("connection lost: ", ErrnoText(error)));
}

}  // namespace

FrameStream::FrameStream(EventLoop* loop, UniqueFd socket, Handler* handler)
    : loop_(loop), handler_(handler), socket_(std::move(socket)), in_(kReadBytes) {
  watch_ = loop_->Watch(socket_.get(), EPOLLIN, [this](uint32_t events) { OnEvents(events); });
}

FrameStream::~FrameStream() { Close(); }

void FrameStream::Close() {
  if (!open_) return;
  open_ = false;
  loop_->Unwatch(watch_);
  socket_.Reset();
  out_.clear();
}

void FrameStream::Fail(const absl::Status& reason) {
  if (!open_) return;
  Close();
  handler_->OnClosed(reason);
}

void FrameStream::OnEvents(uint32_t events) {
  if (events & EPOLLOUT) Flush();
  if (open_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) ReadAll();
  if (open_ && out_.empty()) handler_->OnDrained();
}

void FrameStream::ReadAll() {
  size_t budget = kReadBudget;
  while (open_) {
    const ssize_t n = payload_left_ > 0 ? ReadIntoSink() : ReadIntoBuffer();
    if (!open_) return;
    if (!read_error_.ok()) return Fail(read_error_);
    if (n == 0) return Fail(absl::UnavailableError("the peer closed the connection"));
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      return Fail(Lost(errno));
    }
    if (static_cast<size_t>(n) >= budget) break;
    budget -= static_cast<size_t>(n);
  }
  if (open_) handler_->OnBatchEnd();
}

ssize_t FrameStream::ReadIntoBuffer() {
  if (in_begin_ > 0) {
    std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
    in_end_ -= std::exchange(in_begin_, 0);
  }
  iovec place{in_.data() + in_end_, in_.size() - in_end_};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n <= 0) return n;
  in_end_ += static_cast<size_t>(n);
  read_error_ = TakePassed(message);
  if (read_error_.ok()) read_error_ = ParseBuffered();
  return n;
}

absl::Status FrameStream::TakePassed(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (passed_.valid()) {
      UniqueFd surplus(fd);
      return absl::InvalidArgumentError("more than one descriptor was passed");
    }
    passed_ = UniqueFd(fd);
  }
  if (message.msg_flags & MSG_CTRUNC) {
    return absl::InvalidArgumentError("more than one descriptor was passed");
  }
  return absl::OkStatus();
}

absl::Status FrameStream::ParseBuffered() {
  while (open_) {
    if (payload_left_ > 0) {
      BATON_RETURN_IF_ERROR(FeedSinkFromBuffer());
      if (payload_left_ > 0) return absl::OkStatus();
      continue;
    }
    const size_t have = in_end_ - in_begin_;
    if (have < kFrameHeaderBytes) return absl::OkStatus();
    const std::byte* p = in_.data() + in_begin_;
    BATON_ASSIGN_OR_RETURN(const FrameHeader header, ParseFrameHeader({p, have}));
    const size_t whole = kFrameHeaderBytes + header.message_bytes;
    if (have < whole) {
      // Room for the rest; the limit on a message bounds it.
      if (in_.size() < in_begin_ + whole) in_.resize(in_begin_ + whole);
      return absl::OkStatus();
    }
    in_begin_ += whole;
    if (!frame_.ParseFromArray(p + kFrameHeaderBytes, static_cast<int>(header.message_bytes)) ||
        frame_.frame_case() == baton::v1::HandoffFrame::FRAME_NOT_SET) {
      return absl::InvalidArgumentError("a frame that this version does not know");
    }
    BATON_ASSIGN_OR_RETURN(sink_,
                           handler_->OnFrame(frame_, header.payload_bytes, std::move(passed_)));
    payload_left_ = header.payload_bytes;
  }
  return absl::OkStatus();
}

absl::Status FrameStream::FeedSinkFromBuffer() {
  while (payload_left_ > 0 && in_begin_ < in_end_) {
    iovec place{};
    sink_->Targets({&place, 1});
    const size_t n =
        std::min({size_t{payload_left_}, in_end_ - in_begin_, static_cast<size_t>(place.iov_len)});
    std::memcpy(place.iov_base, in_.data() + in_begin_, n);
    in_begin_ += n;
    payload_left_ -= static_cast<uint32_t>(n);
    sink_->Advance(n);
  }
  return EndPayloadIfComplete();
}

ssize_t FrameStream::ReadIntoSink() {
  std::array<iovec, kMaxVectors> places;
  size_t count = sink_->Targets(places);
  size_t room = payload_left_;
  for (size_t i = 0; i < count; ++i) {
    places[i].iov_len = std::min(places[i].iov_len, room);
    room -= places[i].iov_len;
    if (room == 0) count = i + 1;
  }
  const ssize_t n = readv(socket_.get(), places.data(), static_cast<int>(count));
  if (n <= 0) return n;
  payload_left_ -= static_cast<uint32_t>(n);
  sink_->Advance(static_cast<size_t>(n));
  read_error_ = EndPayloadIfComplete();
  return n;
}

absl::Status FrameStream::EndPayloadIfComplete() {
  if (payload_left_ > 0) return absl::OkStatus();
  sink_ = nullptr;
  return handler_->OnPayloadEnd();
}

void FrameStream::Send(const baton::v1::HandoffFrame& frame, int pass) {
  if (!open_) return;
  Outgoing item;
  item.head = EncodeFrame(frame);
  item.pass = pass;
  out_bytes_ += item.head.size();
  out_.push_back(std::move(item));
  if (!want_write_) Flush();
}

void FrameStream::SendWithPayload(const baton::v1::HandoffFrame& frame,
                                  std::span<const std::span<const std::byte>> payload,
                                  EventLoop::Task sent) {
  if (!open_) return;
  size_t bytes = 0;
  for (const auto& part : payload) bytes += part.size();
  Outgoing item;
  item.head = EncodeFrame(frame, static_cast<uint32_t>(bytes));
  item.payload.assign(payload.begin(), payload.end());
  item.sent = std::move(sent);
  out_bytes_ += item.head.size();
  out_.push_back(std::move(item));
  if (!want_write_) Flush();
}

void FrameStream::OwnPayload() {
  for (Outgoing& item : out_) {
    if (item.payload.empty()) continue;
    std::vector<std::byte> rest;
    for (size_t i = item.next_span; i < item.payload.size(); ++i) {
      const bool begun = i == item.next_span && item.head_sent;
      const auto part = item.payload[i].subspan(begun ? item.offset : 0);
      rest.insert(rest.end(), part.begin(), part.end());
    }
    item.owned = std::move(rest);
    item.payload.assign(1, std::span<const std::byte>(item.owned));
    item.next_span = 0;
    if (item.head_sent) item.offset = 0;
    if (item.sent) loop_->Defer(std::exchange(item.sent, nullptr));
  }
}

void FrameStream::Flush() {
  while (!out_.empty()) {
    Outgoing& item = out_.front();
    const ssize_t n = WriteSome(item);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      // The read side reports the loss; nobody is called from inside Send.
      out_.clear();
      shutdown(socket_.get(), SHUT_RDWR);
      return;
    }
    AdvanceOutgoing(item, static_cast<size_t>(n));
    if (!item.head_sent || item.next_span < item.payload.size()) continue;
    out_bytes_ -= item.head.size();
    if (item.sent) loop_->Defer(std::move(item.sent));
    out_.pop_front();
  }
  if (out_bytes_ > kMaxQueuedBytes) shutdown(socket_.get(), SHUT_RDWR);
  UpdateWatch();
}

ssize_t FrameStream::WriteSome(Outgoing& item) {
  std::array<iovec, kMaxVectors> parts;
  size_t count = 0;
  size_t skip = item.offset;
  if (!item.head_sent) {
    parts[count++] = {item.head.data() + skip, item.head.size() - skip};
    skip = 0;
  }
  for (size_t i = item.next_span; i < item.payload.size() && count < parts.size(); ++i) {
    const auto part = item.payload[i].subspan(std::exchange(skip, 0));
    parts[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (item.pass >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &item.pass, sizeof(int));
  }
  const ssize_t n = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0) item.pass = -1;
  return n;
}

void FrameStream::AdvanceOutgoing(Outgoing& item, size_t bytes) {
  item.offset += bytes;
  if (!item.head_sent) {
    if (item.offset < item.head.size()) return;
    item.offset -= item.head.size();
    item.head_sent = true;
  }
  while (item.next_span < item.payload.size() &&
         item.offset >= item.payload[item.next_span].size()) {
    item.offset -= item.payload[item.next_span].size();
    ++item.next_span;
  }
}

void FrameStream::UpdateWatch() {
  const bool want = !out_.empty();
  if (want == want_write_) return;
  want_write_ = want;
  loop_->Rewatch(watch_, want ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

}  // namespace baton::transport
