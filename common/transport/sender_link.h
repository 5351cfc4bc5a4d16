// SPDX-License-Identifier: Apache-2.0
// A sender's connection to one receiver and the hand-offs on it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "baton/v1/handoff.pb.h"
#include "common/kv/layout.h"
#include "common/transport/event_loop.h"
#include "common/transport/frame_stream.h"
#include "common/transport/outgoing_transfer.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

// What all links of a sender share.
struct SenderContext {
  SenderOptions options;
  const OutgoingFormat* format = nullptr;
  uint64_t incarnation = 0;
  EventLoop* loop = nullptr;
  // Put around every channel: how faults are injected. May be empty.
  std::function<std::unique_ptr<PutChannel>(std::unique_ptr<PutChannel>)> decorate;
};

// Dials the endpoints in order until one works, then serves its hand-offs in
// turns, one frame each. A link lives once: when its connection ends, so do
// its hand-offs, `on_dead` is told, and the next Open makes another link.
// Belongs to the sender's thread.
class SenderLink : private FrameStream::Handler {
 public:
  SenderLink(const SenderContext* context, std::vector<Endpoint> endpoints,
             std::function<void(SenderLink*)> on_dead);
  ~SenderLink() override;

  void Start();
  void Add(std::shared_ptr<OutgoingTransfer> transfer);
  // The transfer has something to send.
  void Wake(OutgoingTransfer* transfer);
  // Ends one transfer with `status` and tells the receiver why.
  void Abort(OutgoingTransfer* transfer, const absl::Status& status);
  // Ends all of them and the connection.
  void Shutdown(const absl::Status& status);
  // Closes the connection as if it had been lost (fault injection).
  void Break();

 private:
  void Dial();
  void OnDialed(uint32_t events);
  void Greet();
  void NextEndpoint(const absl::Status& reason);
  void Reserve(OutgoingTransfer* transfer);
  void Pump();
  // False: no room for it now.
  bool SendNext(OutgoingTransfer* transfer);
  // The bytes of the transfer's next put; it goes on when they are there.
  void BringToHost(OutgoingTransfer* transfer);
  void OnBrought(uint64_t id);
  void SendAgain(uint64_t id);
  void StartRenewal(OutgoingTransfer* transfer);
  void Renew(uint64_t id, uint64_t frames_then);
  OutgoingTransfer* Find(uint64_t id);
  void Remove(OutgoingTransfer* transfer, const absl::Status& status);
  void CancelTimer(uint64_t& timer);
  void StopDialing();

  absl::StatusOr<PayloadSink*> OnFrame(const baton::v1::HandoffFrame& frame, uint32_t payload_bytes,
                                       UniqueFd passed) override;
  absl::Status OnPayloadEnd() override { return absl::OkStatus(); }
  void OnBatchEnd() override { Pump(); }
  void OnDrained() override { Pump(); }
  void OnClosed(const absl::Status& reason) override;
  absl::Status OnWelcome(const baton::v1::HandoffWelcome& welcome);
  void OnReady(const absl::Status& ready);
  absl::Status OnGranted(const baton::v1::TicketGranted& granted);
  absl::Status OnRefused(const baton::v1::Refused& refused);

  // kGreeting: until the welcome; kOpening: until bytes can travel.
  enum class State { kDialing, kGreeting, kOpening, kUp, kDead };

  const SenderContext* const context_;
  const std::vector<Endpoint> endpoints_;
  const std::function<void(SenderLink*)> on_dead_;
  State state_ = State::kDialing;
  size_t next_endpoint_ = 0;
  const Transport* transport_ = nullptr;
  std::string failures_;  // of the endpoints tried
  UniqueFd dialing_;
  uint64_t dial_watch_ = 0, dial_timer_ = 0;
  std::unique_ptr<FrameStream> stream_;
  std::unique_ptr<PutChannel> channel_;
  bool pump_deferred_ = false;

  // For answers that may come when the link is gone.
  const std::shared_ptr<SenderLink*> alive_ = std::make_shared<SenderLink*>(this);
  uint64_t next_transfer_ = 1;
  absl::flat_hash_map<uint64_t, std::shared_ptr<OutgoingTransfer>> transfers_;
  std::deque<uint64_t> turns_;  // transfers with something to send
};

}  // namespace baton::transport
