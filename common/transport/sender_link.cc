// SPDX-License-Identifier: Apache-2.0
#include "common/transport/sender_link.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/system_error.h"
#include "common/transport/layout_info.h"

namespace baton::transport {
namespace {

// After so many frames the loop looks at its other work.
constexpr int kFramesPerTurn = 16;

}  // namespace

SenderLink::SenderLink(const SenderContext* context, std::vector<Endpoint> endpoints,
                       std::function<void(SenderLink*)> on_dead)
    : context_(context), endpoints_(std::move(endpoints)), on_dead_(std::move(on_dead)) {}

SenderLink::~SenderLink() { StopDialing(); }

void SenderLink::Start() { Dial(); }

void SenderLink::CancelTimer(uint64_t& timer) { context_->loop->Cancel(std::exchange(timer, 0)); }

void SenderLink::StopDialing() {
  CancelTimer(dial_timer_);
  context_->loop->Unwatch(std::exchange(dial_watch_, 0));
  dialing_.Reset();
}

void SenderLink::Dial() {
  if (next_endpoint_ == endpoints_.size()) {
    return Shutdown(absl::UnavailableError(
        absl::StrCat("no endpoint of the receiver works: ",
                     failures_.empty() ? "it has none that this worker may use" : failures_)));
  }
  state_ = State::kDialing;
  const Endpoint& endpoint = endpoints_[next_endpoint_];
  transport_ = FindTransport(endpoint.transport);
  absl::StatusOr<UniqueFd> fd = transport_->dial(endpoint.address);
  if (!fd.ok()) return NextEndpoint(fd.status());
  dialing_ = *std::move(fd);
  dial_timer_ = context_->loop->After(context_->options.connect_timeout, [this] {
    dial_timer_ = 0;
    NextEndpoint(absl::UnavailableError("no answer in time"));
  });
  dial_watch_ = context_->loop->Watch(dialing_.get(), EPOLLOUT,
                                      [this](uint32_t events) { OnDialed(events); });
}

void SenderLink::NextEndpoint(const absl::Status& reason) {
  const Endpoint& endpoint = endpoints_[next_endpoint_];
  absl::StrAppend(&failures_, failures_.empty() ? "" : "; ", endpoint.transport, " ",
                  endpoint.address, ": ", std::string(reason.message()));
  StopDialing();
  if (stream_) {
    stream_->Close();
    // This may run inside the stream's own handler.
    context_->loop->Defer([old = std::shared_ptr<FrameStream>(std::move(stream_))] {});
  }
  channel_.reset();
  ++next_endpoint_;
  Dial();
}

void SenderLink::OnDialed(uint32_t) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(dialing_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  context_->loop->Unwatch(std::exchange(dial_watch_, 0));
  if (error != 0) {
    return NextEndpoint(absl::UnavailableError(absl::StrCat("cannot connect: ", ErrnoText(error))));
  }
  Greet();
}

void SenderLink::Greet() {
  state_ = State::kGreeting;  // the dial timer goes on until bytes can travel
  stream_ = std::make_unique<FrameStream>(context_->loop, std::move(dialing_),
                                          static_cast<FrameStream::Handler*>(this));
  baton::v1::HandoffFrame frame;
  baton::v1::HandoffHello& hello = *frame.mutable_hello();
  hello.set_protocol_version(kProtocolVersion);
  hello.set_sender_id(context_->options.sender_id);
  hello.set_sender_incarnation(context_->incarnation);
  FillLayoutInfo(context_->format->layout, *hello.mutable_layout());
  FillWireInfo(context_->format->layout, context_->format->wire, hello);
  hello.set_transport(transport_->name);
  const bool tcp_follows =
      std::any_of(endpoints_.begin() + static_cast<ptrdiff_t>(next_endpoint_) + 1, endpoints_.end(),
                  [](const Endpoint& endpoint) { return endpoint.transport == "tcp"; });
  absl::StatusOr<OutgoingChannel> channel = transport_->make_channel(
      {context_->options, context_->loop, tcp_follows,
       [this](const absl::Status& reason) { OnClosed(reason); },
       [this](const auto& message) { stream_->Send(message); }, [this] { Pump(); },
       context_->format->wire, context_->format->converter.has_value(),
       [this](uint64_t transfer) { SendAgain(transfer); }},
      hello);
  if (!channel.ok()) return NextEndpoint(channel.status());
  channel_ = std::move(channel->puts);
  if (context_->decorate) channel_ = context_->decorate(std::move(channel_));
  // The descriptor is the receiver's once the frame is out; a fresh socket has
  // room for a hello.
  stream_->Send(frame, channel->pass.get());
}

void SenderLink::Add(std::shared_ptr<OutgoingTransfer> transfer) {
  transfer->link = this;
  transfer->id = next_transfer_++;
  OutgoingTransfer* const raw = transfer.get();
  transfers_[raw->id] = std::move(transfer);
  if (state_ == State::kUp) Reserve(raw);
}

void SenderLink::Reserve(OutgoingTransfer* transfer) {
  transfer->transport = transport_->name;
  transfer->prefers_pool = channel_->takes_pool();
  transfer->reserve_sent = true;
  baton::v1::HandoffFrame frame;
  frame.mutable_reserve()->set_transfer(transfer->id);
  frame.mutable_reserve()->set_handoff_key(transfer->request().handoff_key);
  frame.mutable_reserve()->set_prompt_tokens(transfer->request().prompt_tokens);
  frame.mutable_reserve()->set_blocks(transfer->request().blocks);
  stream_->Send(frame);
}

OutgoingTransfer* SenderLink::Find(uint64_t id) {
  const auto it = transfers_.find(id);
  return it == transfers_.end() ? nullptr : it->second.get();
}

void SenderLink::Wake(OutgoingTransfer* transfer) {
  if (!transfer->queued) {
    transfer->queued = true;
    turns_.push_back(transfer->id);
  }
  Pump();
}

void SenderLink::Pump() {
  int frames = 0;
  while (state_ == State::kUp && !turns_.empty() && stream_->idle()) {
    if (++frames > kFramesPerTurn) {
      if (std::exchange(pump_deferred_, true)) return;
      context_->loop->Defer([this] {
        pump_deferred_ = false;
        Pump();
      });
      return;
    }
    const auto it = transfers_.find(turns_.front());
    // Owned here: sending may end the transfer.
    const auto transfer = it == transfers_.end() ? nullptr : it->second;
    if (transfer != nullptr && !SendNext(transfer.get())) return;  // keeps its turn
    turns_.pop_front();
    if (transfer == nullptr || transfer->link != this) continue;
    transfer->queued = transfer->Peek(channel_->frame_bytes()) != OutgoingTransfer::Next::kNothing;
    if (transfer->queued) turns_.push_back(transfer->id);
  }
}

bool SenderLink::SendNext(OutgoingTransfer* transfer) {
  baton::v1::HandoffFrame frame;
  switch (transfer->Peek(channel_->frame_bytes())) {
    case OutgoingTransfer::Next::kNothing:
      return true;
    case OutgoingTransfer::Next::kCommit:
      transfer->TakeCommit(frame);
      channel_->SendBehindPuts(frame, stream_.get());
      return true;
    case OutgoingTransfer::Next::kPut:
      break;
  }
  const bool in_pool = transfer->in_pool();
  if (in_pool && !channel_->takes_pool()) {
    BringToHost(transfer);
    return true;
  }
  if (!channel_->CanSend(transfer->put_bytes())) return false;
  PutChannel::Sources sources;
  const absl::Status prepared = transfer->PreparePut(*frame.mutable_put(), sources);
  if (!prepared.ok()) {
    Abort(transfer, prepared);
    return true;
  }
  if (in_pool) {
    channel_->StageInPool(*frame.mutable_put(), sources);
  } else {
    channel_->Stage(*frame.mutable_put(), sources);
  }
  transfer->TakePut(*frame.mutable_put(), sources);
  ++transfer->frames_sent;
  channel_->Send(frame, stream_.get(), [this, id = transfer->id] {
    OutgoingTransfer* const sent = Find(id);
    if (sent == nullptr) return;
    sent->PutSent();
    Wake(sent);
  });
  return true;
}

void SenderLink::BringToHost(OutgoingTransfer* transfer) {
  if (!context_->options.to_host) {
    return Abort(transfer, absl::InvalidArgumentError("a put of bytes in a pool that is none"));
  }
  transfer->prefers_pool = false;
  transfer->waits_for_host = true;
  context_->options.to_host(
      transfer->places(), [loop = context_->loop, self = std::weak_ptr(alive_), id = transfer->id] {
        loop->Post([self, id] {
          const auto link = self.lock();
          if (link != nullptr) (*link)->OnBrought(id);
        });
      });
}

void SenderLink::OnBrought(uint64_t id) {
  OutgoingTransfer* const transfer = Find(id);
  if (transfer == nullptr) return;
  transfer->BroughtToHost();
  Wake(transfer);
}

void SenderLink::SendAgain(uint64_t id) {
  OutgoingTransfer* const transfer = Find(id);
  if (transfer == nullptr) return;
  transfer->PutLost();
  Wake(transfer);
}

void SenderLink::StartRenewal(OutgoingTransfer* transfer) {
  // A third of the lease: two of these may be late.
  transfer->renewal_timer = context_->loop->After(
      transfer->lease() / 3,
      [this, id = transfer->id, then = transfer->frames_sent] { Renew(id, then); });
}

void SenderLink::Renew(uint64_t id, uint64_t frames_then) {
  OutgoingTransfer* const transfer = Find(id);
  if (transfer == nullptr) return;
  transfer->renewal_timer = 0;
  // Behind a frame that is stuck, another one helps nobody.
  if (transfer->frames_sent == frames_then && stream_->idle()) {
    baton::v1::HandoffFrame frame;
    transfer->FillRenewal(frame);
    stream_->Send(frame);
  }
  StartRenewal(transfer);
}

void SenderLink::Remove(OutgoingTransfer* transfer, const absl::Status& status) {
  const auto it = transfers_.find(transfer->id);
  if (it == transfers_.end()) return;
  const std::shared_ptr<OutgoingTransfer> keep = std::move(it->second);
  transfers_.erase(it);
  CancelTimer(keep->deadline_timer);
  CancelTimer(keep->renewal_timer);
  keep->link = nullptr;
  // Its sources may be reused from here on.
  if (keep->in_flight && stream_) stream_->OwnPayload();
  keep->End(status);
}

void SenderLink::Abort(OutgoingTransfer* transfer, const absl::Status& status) {
  const bool tell = state_ == State::kUp && transfer->reserve_sent;
  const uint64_t id = transfer->id;
  Remove(transfer, status);
  if (!tell) return;
  baton::v1::HandoffFrame frame;
  frame.mutable_abort()->set_transfer(id);
  const auto refused = RefusedFrame(id, status);  // for a message that is fit for the wire
  frame.mutable_abort()->set_reason(refused.refused().message());
  stream_->Send(frame);
}

void SenderLink::Shutdown(const absl::Status& status) {
  if (state_ == State::kDead) return;
  state_ = State::kDead;
  StopDialing();
  if (stream_) stream_->Close();
  while (!transfers_.empty()) Remove(transfers_.begin()->second.get(), status);
  on_dead_(this);
}

void SenderLink::Break() {
  if (stream_) OnClosed(absl::UnavailableError("the connection was cut"));
}

void SenderLink::OnClosed(const absl::Status& reason) {
  if (state_ == State::kGreeting || state_ == State::kOpening) return NextEndpoint(reason);
  if (state_ != State::kUp) return;
  LogWarning("kv receiver lost", {{"transport", transport_->name},
                                  {"address", endpoints_[next_endpoint_].address},
                                  {"reason", std::string(reason.message())}});
  Shutdown(absl::UnavailableError(
      absl::StrCat("the KV receiver is gone: ", std::string(reason.message()))));
}

absl::StatusOr<PayloadSink*> SenderLink::OnFrame(const baton::v1::HandoffFrame& frame,
                                                 uint32_t payload_bytes, UniqueFd passed) {
  using Frame = baton::v1::HandoffFrame;
  if (payload_bytes != 0 || passed.valid()) {
    return absl::InvalidArgumentError("a receiver's frames carry neither bytes nor descriptors");
  }
  const bool up = state_ == State::kUp;
  if (frame.frame_case() == Frame::kWelcome && state_ == State::kGreeting) {
    BATON_RETURN_IF_ERROR(OnWelcome(frame.welcome()));
  } else if (frame.frame_case() == Frame::kRefused) {
    BATON_RETURN_IF_ERROR(OnRefused(frame.refused()));
  } else if (frame.frame_case() == Frame::kGranted && up) {
    BATON_RETURN_IF_ERROR(OnGranted(frame.granted()));
  } else if (frame.frame_case() == Frame::kConsumed && up) {
    BATON_RETURN_IF_ERROR(channel_->Consumed(frame.consumed().bytes()));
  } else if (frame.frame_case() == Frame::kArrived && (up || state_ == State::kOpening)) {
    BATON_RETURN_IF_ERROR(channel_->Arrived(frame.arrived()));
  } else if (frame.frame_case() == Frame::kNcclPath && (up || state_ == State::kOpening)) {
    BATON_RETURN_IF_ERROR(channel_->OnPath(frame.nccl_path()));
  } else if (frame.frame_case() == Frame::kIpcPath && (up || state_ == State::kOpening)) {
    BATON_RETURN_IF_ERROR(channel_->OnIpcPath(frame.ipc_path()));
  } else if (frame.frame_case() == Frame::kCommitted && up) {
    OutgoingTransfer* const transfer = Find(frame.committed().transfer());
    if (transfer != nullptr) Remove(transfer, absl::OkStatus());
  } else {
    return absl::InvalidArgumentError("a frame that has no place here");
  }
  return nullptr;
}

absl::Status SenderLink::OnWelcome(const baton::v1::HandoffWelcome& welcome) {
  state_ = State::kOpening;
  if (channel_->bounds_opening()) CancelTimer(dial_timer_);
  channel_->Welcomed(welcome, [this](const absl::Status& ready) { OnReady(ready); });
  return absl::OkStatus();
}

void SenderLink::OnReady(const absl::Status& ready) {
  if (state_ != State::kOpening) return;
  if (!ready.ok()) return NextEndpoint(ready);
  state_ = State::kUp;
  CancelTimer(dial_timer_);
  LogInfo("kv receiver connected",
          {{"transport", transport_->name}, {"address", endpoints_[next_endpoint_].address}});
  std::vector<uint64_t> waiting;
  for (const auto& [id, transfer] : transfers_) waiting.push_back(id);
  std::sort(waiting.begin(), waiting.end());
  for (const uint64_t id : waiting) Reserve(Find(id));
}

absl::Status SenderLink::OnGranted(const baton::v1::TicketGranted& granted) {
  OutgoingTransfer* const transfer = Find(granted.transfer());
  if (transfer == nullptr) return absl::OkStatus();  // aborted meanwhile; the receiver was told
  BATON_RETURN_IF_ERROR(transfer->Grant(granted));
  StartRenewal(transfer);
  Wake(transfer);
  return absl::OkStatus();
}

absl::Status SenderLink::OnRefused(const baton::v1::Refused& refused) {
  if (refused.transfer() == 0) {
    const absl::Status status = StatusOf(refused);
    if (absl::IsUnavailable(status) && state_ != State::kUp) {
      NextEndpoint(status);
    } else {
      // About this worker, not about the way to the other: no endpoint helps.
      Shutdown(status);
    }
    return absl::OkStatus();
  }
  OutgoingTransfer* const transfer = Find(refused.transfer());
  if (transfer != nullptr) Remove(transfer, StatusOf(refused));
  return absl::OkStatus();
}

}  // namespace baton::transport
