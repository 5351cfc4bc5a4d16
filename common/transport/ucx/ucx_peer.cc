// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ucx/ucx_peer.h"

#include <stdlib.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace baton::transport {
namespace {

// A stall is looked for so often while something is on its way. Progress is made
// then too, should UCX have missed to wake us.
constexpr absl::Duration kStallInterval = absl::Milliseconds(50);
// After so many rounds the loop looks at its other work.
constexpr int kRoundsPerTurn = 256;
constexpr unsigned kPutMessage = 1;
// Rounds for the end of an endpoint whose peer may be dead.
constexpr int kClosingRounds = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<UcxPeer>> UcxPeer::Make(std::shared_ptr<UcxContext> context,
                                                       EventLoop* loop, absl::Duration stall_limit,
                                                       Lost lost) {
  std::unique_ptr<UcxPeer> peer(
      new UcxPeer(std::move(context), loop, stall_limit, std::move(lost)));
  if (absl::Status status = peer->Start(); !status.ok()) return status;
  return peer;
}

absl::Status UcxPeer::Start() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucs_status_t status = ucp_worker_create(context_->handle(), &params, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return UcxError("no worker", status);
  }
  int fd = -1;
  status = ucp_worker_get_efd(worker_, &fd);
  if (status != UCS_OK) return UcxError("no descriptor to wait for", status);
  watch_ = loop_->Watch(fd, EPOLLIN, [this](uint32_t) { Progress(); });
  ScheduleProgress();  // arms the descriptor
  return absl::OkStatus();
}

UcxPeer::~UcxPeer() {
  *alive_ = false;
  loop_->Cancel(stall_timer_);
  if (watch_ != 0) loop_->Unwatch(watch_);
  if (endpoint_ != nullptr) CloseEndpoint();  // ends the puts, which use the key
  if (key_ != nullptr) ucp_rkey_destroy(key_);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
}

void UcxPeer::CloseEndpoint() {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint_, &params);
  if (!UCS_PTR_IS_PTR(closing)) return;
  for (int i = 0; i < kClosingRounds && ucp_request_check_status(closing) == UCS_INPROGRESS; ++i) {
    ucp_worker_progress(worker_);
  }
  ucp_request_free(closing);
}

absl::StatusOr<std::string> UcxPeer::Address() const {
  ucp_address_t* packed = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_, &packed, &bytes);
  if (status != UCS_OK) return UcxError("no address", status);
  std::string address(reinterpret_cast<const char*>(packed), bytes);
  ucp_worker_release_address(worker_, packed);
  return address;
}

absl::Status UcxPeer::Connect(const std::string& address, const std::string& key) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnError;
  params.err_handler.arg = this;
  ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    return UcxError("no way to the peer", status);
  }
  status = ucp_ep_rkey_unpack(endpoint_, key.data(), &key_);
  if (status != UCS_OK) {
    key_ = nullptr;
    return UcxError("the peer's memory cannot be reached", status);
  }
  ReadLanes();
  return absl::OkStatus();
}

absl::Status UcxPeer::TakeMessages(const UcxMemory* memory, EventLoop::Task arrived) {
  target_ = memory;
  message_arrived_ = std::move(arrived);
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = kPutMessage;
  params.flags = UCP_AM_FLAG_WHOLE_MSG;
  params.cb = OnMessage;
  params.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &params);
  return status == UCS_OK ? absl::OkStatus() : UcxError("no messages", status);
}

ucs_status_t UcxPeer::OnMessage(void* self, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* params) {
  auto* const peer = static_cast<UcxPeer*>(self);
  uint64_t remote = 0;
  if (header_bytes != sizeof remote || (params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return UCS_OK;  // not ours
  }
  std::memcpy(&remote, header, sizeof remote);
  const uint64_t offset = remote - reinterpret_cast<uintptr_t>(peer->target_->data());
  const size_t room = peer->target_->size();
  if (bytes > room || offset > room - bytes) return UCS_OK;
  std::memcpy(peer->target_->data() + offset, data, bytes);
  peer->message_arrived_();
  return UCS_OK;
}

void UcxPeer::Put(const UcxMemory& memory, size_t offset, size_t bytes, uint64_t remote,
                  EventLoop::Task arrived) {
  if (!failure_.ok() || endpoint_ == nullptr) return;
  pending_.push_back(std::make_unique<Pending>(
      Pending{this, std::move(arrived), EventLoop::Clock::now(), remote}));
  Pending* const pending = pending_.back().get();
  const std::byte* const from = memory.data() + offset;
  const absl::Status begun =
      writes_ ? Write(from, bytes, memory.handle(), pending) : SendMessage(from, bytes, pending);
  if (!begun.ok()) return Fail(begun);
  ArmStallTimer();
  ScheduleProgress();
}

absl::Status UcxPeer::Write(const std::byte* from, size_t bytes, ucp_mem_h registered,
                            Pending* pending) {
  pending->sent = true;  // the flush comes after it
  ucp_request_param_t put{};
  put.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH;
  put.cb.send = OnPut;
  put.user_data = this;
  put.memh = registered;
  const ucs_status_ptr_t sent = ucp_put_nbx(endpoint_, from, bytes, pending->remote, key_, &put);
  if (UCS_PTR_IS_ERR(sent)) return UcxError("put", UCS_PTR_STATUS(sent));
  ucp_request_param_t flush{};
  flush.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  flush.cb.send = OnFlushed;
  flush.user_data = pending;
  const ucs_status_ptr_t flushed = ucp_ep_flush_nbx(endpoint_, &flush);
  if (UCS_PTR_IS_ERR(flushed)) return UcxError("flush", UCS_PTR_STATUS(flushed));
  if (flushed == nullptr) pending->acknowledged = true;
  return absl::OkStatus();
}

absl::Status UcxPeer::SendMessage(const std::byte* from, size_t bytes, Pending* pending) {
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;  // needs no answer
  params.cb.send = OnSent;
  params.user_data = pending;
  const ucs_status_ptr_t sent = ucp_am_send_nbx(endpoint_, kPutMessage, &pending->remote,
                                                sizeof pending->remote, from, bytes, &params);
  if (UCS_PTR_IS_ERR(sent)) return UcxError("message", UCS_PTR_STATUS(sent));
  if (sent == nullptr) pending->sent = true;
  return absl::OkStatus();
}

absl::Status UcxPeer::Acknowledge(uint64_t puts) {
  auto next = std::find_if(pending_.begin(), pending_.end(),
                           [](const auto& pending) { return !pending->acknowledged; });
  for (; puts > 0; --puts, ++next) {
    if (writes_ || next == pending_.end()) {
      return absl::InvalidArgumentError("the receiver has more puts than it was sent");
    }
    (*next)->acknowledged = true;
  }
  ScheduleProgress();
  return absl::OkStatus();
}

void UcxPeer::OnPut(void* request, ucs_status_t status, void* self) {
  ucp_request_free(request);
  if (status != UCS_OK) static_cast<UcxPeer*>(self)->Fail(UcxError("put", status));
}

void UcxPeer::OnFlushed(void* request, ucs_status_t status, void* pending) {
  ucp_request_free(request);
  auto* const flushed = static_cast<Pending*>(pending);
  if (status != UCS_OK) return flushed->peer->Fail(UcxError("flush", status));
  flushed->acknowledged = true;
}

void UcxPeer::OnSent(void* request, ucs_status_t status, void* pending) {
  ucp_request_free(request);
  auto* const sent = static_cast<Pending*>(pending);
  if (status != UCS_OK) return sent->peer->Fail(UcxError("message", status));
  sent->sent = true;
}

void UcxPeer::OnError(void* self, ucp_ep_h, ucs_status_t status) {
  static_cast<UcxPeer*>(self)->Fail(UcxError("the peer is gone", status));
}

void UcxPeer::Fail(const absl::Status& reason) {
  // UCX calls back with "cancelled" while it is torn down.
  if (!failure_.ok() || !*alive_) return;
  failure_ = reason;
  Later([lost = lost_, reason] { lost(reason); });
}

void UcxPeer::Later(EventLoop::Task task) {
  loop_->Defer([alive = alive_, task = std::move(task)] {
    if (*alive) task();
  });
}

void UcxPeer::ScheduleProgress() {
  if (std::exchange(progress_scheduled_, true)) return;
  Later([this] {
    progress_scheduled_ = false;
    Progress();
  });
}

void UcxPeer::Progress() {
  bool armed = false;
  for (int round = 0; round < kRoundsPerTurn && !armed && failure_.ok(); ++round) {
    if (ucp_worker_progress(worker_) != 0) continue;
    const ucs_status_t status = ucp_worker_arm(worker_);
    armed = status == UCS_OK;
    if (!armed && status != UCS_ERR_BUSY) Fail(UcxError("waiting", status));
  }
  if (!armed && failure_.ok()) ScheduleProgress();
  RunArrived();
}

void UcxPeer::RunArrived() {
  while (failure_.ok() && !pending_.empty() && pending_.front()->sent &&
         pending_.front()->acknowledged) {
    const EventLoop::Task arrived = std::move(pending_.front()->arrived);
    pending_.pop_front();
    arrived();
  }
}

void UcxPeer::ArmStallTimer() {
  if (stall_timer_ != 0) return;
  stall_timer_ = loop_->After(kStallInterval, [this] {
    stall_timer_ = 0;
    Progress();
    if (pending_.empty() || !failure_.ok()) return;
    if (EventLoop::Clock::now() - pending_.front()->begun >
        absl::ToChronoNanoseconds(stall_limit_)) {
      return Fail(absl::UnavailableError(absl::StrCat("UCX: the peer has acknowledged nothing for ",
                                                      absl::FormatDuration(stall_limit_))));
    }
    ArmStallTimer();
  });
}

void UcxPeer::ReadLanes() {
  // 1.13 tells it in print alone, in lines such as
  //   "#  lane[0]:  3:posix/memory.0 md[1] -> md[1]/posix ... rma_bw#0"
  //   "#  put[0]: 0..<short>..<bcopy>..(inf)", where it has one-sided writes.
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return;
  ucp_ep_print_info(endpoint_, stream);
  std::fclose(stream);
  for (const absl::string_view line : absl::StrSplit(absl::string_view(text, bytes), '\n')) {
    writes_ |= absl::StrContains(line, "put[");
    const size_t at = line.find("lane[");
    const size_t colon = at == absl::string_view::npos ? at : line.find("]:", at);
    if (colon == absl::string_view::npos) continue;
    // "3:posix/memory.0": its number comes first.
    const absl::string_view rest = absl::StripLeadingAsciiWhitespace(line.substr(colon + 2));
    const size_t name = rest.find(':');
    if (name == absl::string_view::npos) continue;
    lanes_.emplace_back(rest.substr(name + 1, rest.find(' ') - name - 1));
  }
  free(text);
}

}  // namespace baton::transport
