// SPDX-License-Identifier: Apache-2.0
#include "common/transport/receiver_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/transport/frame.h"
#include "common/transport/layout_info.h"
#include "common/transport/sampling_state.h"

namespace baton::transport {
namespace {

using baton::v1::HandoffFrame;

constexpr absl::Duration kHelloTimeout = absl::Seconds(5);
constexpr size_t kHandoffKeyLimit = 64;
constexpr size_t kSenderIdLimit = 256;
// Reported at the latest after so much, so that the sender's ring never runs dry.
constexpr uint64_t kReportBytes = 1 << 20;

}  // namespace

ReceiverSession::ReceiverSession(SessionHost* host, uint64_t id,
                                 std::span<const Transport* const> transports, UniqueFd socket)
    : host_(host),
      id_(id),
      transports_(transports),
      stream_(&host->loop(), std::move(socket), this) {
  hello_timer_ = host_->loop().After(
      kHelloTimeout, [this] { Shutdown(absl::DeadlineExceededError("no hello in time"), true); });
}

ReceiverSession::~ReceiverSession() { host_->loop().Cancel(hello_timer_); }

absl::StatusOr<PayloadSink*> ReceiverSession::OnFrame(const HandoffFrame& frame,
                                                      uint32_t payload_bytes, UniqueFd passed) {
  absl::StatusOr<PayloadSink*> sink = Dispatch(frame, payload_bytes, std::move(passed));
  // The stream closes with the error; the peer should know why.
  if (!sink.ok()) stream_.Send(RefusedFrame(0, sink.status()));
  return sink;
}

absl::StatusOr<PayloadSink*> ReceiverSession::Dispatch(const HandoffFrame& frame,
                                                       uint32_t payload_bytes, UniqueFd passed) {
  const bool is_hello = frame.frame_case() == HandoffFrame::kHello;
  if (is_hello != (epoch_ == 0)) {
    return absl::InvalidArgumentError(is_hello ? "a second hello" : "a frame before the hello");
  }
  if (passed.valid() && !is_hello) return absl::InvalidArgumentError("a descriptor nobody expects");
  if (frame.frame_case() == HandoffFrame::kPut) return OnPut(frame.put(), payload_bytes);
  if (payload_bytes != 0) return absl::InvalidArgumentError("bytes behind a frame that has none");
  switch (frame.frame_case()) {
    case HandoffFrame::kHello:
      BATON_RETURN_IF_ERROR(OnHello(frame.hello(), std::move(passed)));
      return nullptr;
    case HandoffFrame::kReserve:
      BATON_RETURN_IF_ERROR(OnReserve(frame.reserve()));
      return nullptr;
    case HandoffFrame::kCommit:
      OnCommit(frame.commit());
      return nullptr;
    case HandoffFrame::kAbort:
      End(frame.abort().transfer(), absl::CancelledError(frame.abort().reason()));
      return nullptr;
    case HandoffFrame::kNcclPath:
      BATON_RETURN_IF_ERROR(source_->OnPath(frame.nccl_path()));
      return nullptr;
    case HandoffFrame::kNcclExpect:
      BATON_RETURN_IF_ERROR(source_->OnExpect(frame.nccl_expect()));
      return nullptr;
    default:
      return absl::InvalidArgumentError("a frame that only receivers send");
  }
}

absl::Status ReceiverSession::ChooseTransport(const std::string& name) {
  transport_ = transports_.back();
  if (name.empty()) return absl::OkStatus();
  const auto it = std::find_if(transports_.begin(), transports_.end(),
                               [&](const Transport* transport) { return name == transport->name; });
  if (it == transports_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport \"", absl::CHexEscape(name.substr(0, 32)),
                     "\" is not offered on this address, ", transport_->name, " is"));
  }
  transport_ = *it;
  return absl::OkStatus();
}

absl::Status ReceiverSession::OnHello(const baton::v1::HandoffHello& hello, UniqueFd passed) {
  if (hello.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat("protocol_version differs: ours is ",
                                                      kProtocolVersion, ", theirs is ",
                                                      hello.protocol_version()));
  }
  if (hello.sender_id().size() > kSenderIdLimit) {
    return absl::InvalidArgumentError("sender_id is too long");
  }
  BATON_ASSIGN_OR_RETURN(format_, PlanIncoming(host_->layout(), hello));
  BATON_RETURN_IF_ERROR(ChooseTransport(hello.transport()));
  HandoffFrame frame;
  const SourceContext context = {host_->options(),
                                 &host_->loop(),
                                 [this](const absl::Status& reason) { OnClosed(reason); },
                                 [this](const HandoffFrame& message) { stream_.Send(message); },
                                 host_->layout(),
                                 format_->converter.has_value()};
  BATON_ASSIGN_OR_RETURN(source_, transport_->make_source(context, hello, std::move(passed),
                                                          *frame.mutable_welcome()));
  put_.emplace(*format_);
  joiner_.emplace(format_->wire_bytes);
  host_->loop().Cancel(std::exchange(hello_timer_, 0));
  sender_id_ = hello.sender_id();
  sender_incarnation_ = hello.sender_incarnation();
  epoch_ = host_->NewEpoch(*this);
  frame.mutable_welcome()->set_receiver_id(host_->options().receiver_id);
  frame.mutable_welcome()->set_receiver_incarnation(host_->incarnation());
  stream_.Send(frame);
  LogInfo("kv sender connected", {{"sender_id", sender_id_},
                                  {"transport", transport_->name},
                                  {"kv_type", hello.layout().kv_type()},
                                  {"wire_kv_type", hello.wire_kv_type()},
                                  {"converted", format_->converter.has_value()},
                                  {"epoch", static_cast<int64_t>(epoch_)}});
  return absl::OkStatus();
}

absl::Status ReceiverSession::OnReserve(const baton::v1::Reserve& reserve) {
  const uint64_t transfer = reserve.transfer();
  if (transfer == 0 || incoming_.contains(transfer)) {
    return absl::InvalidArgumentError(absl::StrCat("transfer ", transfer, " is taken"));
  }
  if (reserve.handoff_key().size() > kHandoffKeyLimit) {
    return absl::InvalidArgumentError("handoff_key is too long");
  }
  if (!host_->TakeTicketPlace()) {
    stream_.Send(RefusedFrame(
        transfer, absl::ResourceExhaustedError(absl::StrCat(
                      "max_open_tickets (", host_->options().max_open_tickets, ") are open"))));
    return absl::OkStatus();
  }
  const ReserveRequest request{.handoff_key = reserve.handoff_key(),
                               .prompt_tokens = reserve.prompt_tokens(),
                               .blocks = reserve.blocks(),
                               .origin = format_->origin};
  incoming_[transfer].prompt_tokens = request.prompt_tokens;
  incoming_[transfer].blocks = request.block_count();
  host_->AskLanding(id_, transfer, request);
  return absl::OkStatus();
}

void ReceiverSession::OnReserved(uint64_t transfer, absl::StatusOr<Grant> grant) {
  const auto it = incoming_.find(transfer);
  if (it == incoming_.end()) return;  // the landing answered twice
  if (it->second.stage == Stage::kAbandoned) {
    incoming_.erase(it);
    host_->GiveTicketPlace();
    if (grant.ok()) {
      host_->landing().Aborted(grant->landing_id,
                               absl::CancelledError("the sender gave up before the grant"));
    }
    return;
  }
  if (it->second.stage != Stage::kReserving) return;
  Incoming& incoming = it->second;
  incoming.stage = Stage::kOpen;
  if (!grant.ok()) return Refuse(transfer, grant.status());
  const uint32_t needed = incoming.blocks;
  const uint64_t got = uint64_t{grant->first_block} + grant->blocks.size();
  incoming.ticket =
      std::make_unique<Ticket>(epoch_, *std::move(grant), host_->layout(), format_->wire_bytes);
  incoming.last_frame = EventLoop::Clock::now();
  if (got != needed) {
    return Refuse(transfer, absl::FailedPreconditionError(
                                absl::StrCat("a grant of ", got, " blocks for a hand-off of ",
                                             needed, ": the two ends do not agree on its window")));
  }
  host_->TicketOpened(incoming.ticket->landing_id(), id_, transfer);
  ArmLease(transfer, incoming.last_frame);
  SendGranted(transfer, *incoming.ticket);
}

void ReceiverSession::SendGranted(uint64_t transfer, const Ticket& ticket) {
  HandoffFrame frame;
  baton::v1::TicketGranted& granted = *frame.mutable_granted();
  granted.set_transfer(transfer);
  granted.set_ticket_id(ticket.id());
  granted.set_epoch(ticket.epoch());
  granted.set_first_block(ticket.first_block());
  granted.set_block_count(ticket.block_count());
  const int64_t lease_ms = absl::ToInt64Milliseconds(host_->options().lease);
  granted.set_lease_ms(static_cast<uint32_t>(std::clamp<int64_t>(lease_ms, 1, UINT32_MAX)));
  stream_.Send(frame);
}

ReceiverSession::Incoming* ReceiverSession::FindOpen(uint64_t transfer) {
  const auto it = incoming_.find(transfer);
  if (it == incoming_.end() || it->second.stage != Stage::kOpen) return nullptr;
  return &it->second;
}

absl::StatusOr<PayloadSink*> ReceiverSession::OnPut(const baton::v1::Put& put,
                                                    uint32_t payload_bytes) {
  if (source_->Pulls(put, payload_bytes)) {
    OnPull(put);
    return nullptr;
  }
  Incoming* const incoming = FindOpen(put.transfer());
  absl::Status checked = incoming != nullptr
                             ? incoming->ticket->Check(put)
                             : absl::FailedPreconditionError("stale put: no ticket is open for it");
  const absl::StatusOr<const std::byte*> bytes = source_->Locate(put, payload_bytes);
  if (checked.ok()) checked = bytes.status();
  if (checked.ok() && put.bytes() > 0 && incoming->pulls->any()) {
    checked = absl::UnavailableError("a copy into the hand-off's blocks does not come to its end");
  }
  if (incoming != nullptr) incoming->last_frame = EventLoop::Clock::now();
  put_transfer_ = put.transfer();
  if (!checked.ok()) {
    put_->BeginDiscard();
    Refuse(put.transfer(), checked);
  } else {
    put_->Begin(incoming->ticket.get(), put);
  }
  if (source_->reports_consumed() && bytes.ok()) {
    consumed_transfer_ = put.transfer();
    if (*bytes == nullptr) {
      coming_ = payload_bytes;
    } else {
      put_->CopyFrom({*bytes, put.bytes()});
      AddConsumed(put.bytes());
    }
  }
  if (payload_bytes == 0) BATON_RETURN_IF_ERROR(OnPayloadEnd());
  return &*put_;
}

void ReceiverSession::AddConsumed(uint64_t bytes) {
  consumed_ += bytes;
  if (consumed_ >= kReportBytes) ReportConsumed();
}

absl::Status ReceiverSession::OnPayloadEnd() {
  AddConsumed(std::exchange(coming_, 0));
  const absl::Status landed = put_->Finish();
  if (!landed.ok()) {
    Refuse(put_transfer_, landed);
  } else if (Incoming* const incoming = FindOpen(put_transfer_); incoming != nullptr) {
    incoming->last_frame = EventLoop::Clock::now();
  }
  return absl::OkStatus();
}

void ReceiverSession::ReportConsumed() {
  if (consumed_ == 0) return;
  HandoffFrame frame;
  frame.mutable_consumed()->set_transfer(consumed_transfer_);
  frame.mutable_consumed()->set_bytes(std::exchange(consumed_, 0));
  stream_.Send(frame);
}

absl::Status ReceiverSession::CheckCommit(const Incoming& incoming,
                                          const baton::v1::Commit& commit) const {
  BATON_RETURN_IF_ERROR(incoming.ticket->CheckIdentity(commit.ticket_id(), commit.epoch()));
  if (incoming.pulls->any()) {
    return absl::FailedPreconditionError("committed before its puts were reported as consumed");
  }
  BATON_RETURN_IF_ERROR(incoming.ticket->CheckComplete(commit));
  if (commit.prompt_tokens() != incoming.prompt_tokens) {
    return absl::FailedPreconditionError(absl::StrCat("committed for ", commit.prompt_tokens(),
                                                      " prompt tokens, reserved for ",
                                                      incoming.prompt_tokens));
  }
  if (commit.state().version() != kSamplingStateVersion) {
    return absl::FailedPreconditionError(absl::StrCat("sampling state of version ",
                                                      commit.state().version(), ", known is ",
                                                      kSamplingStateVersion));
  }
  return absl::OkStatus();
}

void ReceiverSession::OnCommit(const baton::v1::Commit& commit) {
  const uint64_t transfer = commit.transfer();
  Incoming* const incoming = FindOpen(transfer);
  if (incoming == nullptr) {
    return Refuse(transfer,
                  absl::FailedPreconditionError("stale commit: no ticket is open for it"));
  }
  const absl::Status checked = CheckCommit(*incoming, commit);
  if (!checked.ok()) return Refuse(transfer, checked);
  host_->loop().Cancel(std::exchange(incoming->lease_timer, 0));
  const uint64_t landing_id = incoming->ticket->landing_id();
  host_->TicketClosed(landing_id);
  incoming->stage = Stage::kCommitting;
  // Nothing is written from here on.
  const std::unique_ptr<Ticket> ticket = std::move(incoming->ticket);
  host_->AskCommitted(id_, transfer, landing_id, StateFrom(commit.state()), ticket->in_pool());
}

void ReceiverSession::OnAccepted(uint64_t transfer, const absl::Status& accepted) {
  const auto it = incoming_.find(transfer);
  if (it == incoming_.end() || it->second.stage != Stage::kCommitting) return;
  if (!accepted.ok()) return Refuse(transfer, accepted);
  incoming_.erase(it);
  host_->GiveTicketPlace();
  HandoffFrame frame;
  frame.mutable_committed()->set_transfer(transfer);
  stream_.Send(frame);
}

void ReceiverSession::Revoke(uint64_t transfer, const absl::Status& reason) {
  if (FindOpen(transfer) != nullptr) Refuse(transfer, reason);
}

void ReceiverSession::Refuse(uint64_t transfer, const absl::Status& status) {
  stream_.Send(RefusedFrame(transfer, status));
  End(transfer, status);
}

void ReceiverSession::End(uint64_t transfer, const absl::Status& reason) {
  const auto it = incoming_.find(transfer);
  if (it == incoming_.end()) return;
  const Stage stage = it->second.stage;
  if (!ended_ && (stage == Stage::kReserving || stage == Stage::kAbandoned)) {
    it->second.stage = Stage::kAbandoned;
    return;
  }
  const Incoming incoming = std::move(it->second);
  incoming_.erase(it);
  host_->GiveTicketPlace();
  if (incoming.ticket == nullptr) return;  // never granted, or the landing has it already
  host_->loop().Cancel(incoming.lease_timer);
  put_->Drop(incoming.ticket.get());
  host_->TicketClosed(incoming.ticket->landing_id());
  incoming.pulls->AtEnd([landing = &host_->landing(), id = incoming.ticket->landing_id(), reason] {
    landing->Aborted(id, reason);
  });
}

void ReceiverSession::ArmLease(uint64_t transfer, EventLoop::Clock::time_point from) {
  const auto lease = absl::ToChronoNanoseconds(host_->options().lease);
  incoming_[transfer].lease_timer =
      host_->loop().At(from + lease, [this, transfer] { OnLease(transfer); });
}

void ReceiverSession::OnLease(uint64_t transfer) {
  Incoming* const incoming = FindOpen(transfer);
  if (incoming == nullptr) return;
  incoming->lease_timer = 0;
  // Frames do not move the timer; it looks for itself whether one came.
  const auto lease = absl::ToChronoNanoseconds(host_->options().lease);
  if (EventLoop::Clock::now() < incoming->last_frame + lease) {
    return ArmLease(transfer, incoming->last_frame);
  }
  Refuse(transfer, absl::DeadlineExceededError(absl::StrCat(
                       "the ticket's lease of ", absl::ToInt64Milliseconds(host_->options().lease),
                       " ms ran out: nothing came for it")));
}

void ReceiverSession::OnClosed(const absl::Status& reason) {
  if (reason.code() != absl::StatusCode::kUnavailable) {
    LogWarning("kv sender refused",
               {{"sender_id", sender_id_}, {"reason", std::string(reason.message())}});
  }
  Shutdown(absl::UnavailableError(
               absl::StrCat("the KV sender is gone: ", std::string(reason.message()))),
           false);
}

void ReceiverSession::Shutdown(const absl::Status& reason, bool tell) {
  if (std::exchange(ended_, true)) return;
  if (tell) stream_.Send(RefusedFrame(0, reason));
  stream_.Close();
  while (!incoming_.empty()) End(incoming_.begin()->first, reason);
  host_->SessionEnded(this);
}

}  // namespace baton::transport
