// SPDX-License-Identifier: Apache-2.0
// One sender's connection on the receiver: its tickets and its Puts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "baton/v1/handoff.pb.h"
#include "common/base/unique_fd.h"
#include "common/kv/layout.h"
#include "common/transport/event_loop.h"
#include "common/transport/frame_stream.h"
#include "common/transport/incoming_put.h"
#include "common/transport/layout_info.h"
#include "common/transport/put_channel.h"
#include "common/transport/slice_digest.h"
#include "common/transport/ticket.h"

namespace baton::transport {

class ReceiverSession;

// What a session needs of its receiver. Receiver's thread.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual const ReceiverOptions& options() const = 0;
  virtual const kv::KvLayout& layout() const = 0;
  virtual KvLanding& landing() = 0;
  virtual EventLoop& loop() = 0;
  virtual uint64_t incarnation() const = 0;
  virtual ReceiverSession* FindSession(uint64_t id) = 0;  // null: it has ended
  // A number that was never given out before, for the session that has greeted.
  // Ends sessions of other incarnations of the same sender.
  virtual uint64_t NewEpoch(const ReceiverSession& session) = 0;
  // False: as many tickets are open or asked for as may be.
  virtual bool TakeTicketPlace() = 0;
  virtual void GiveTicketPlace() = 0;
  // Asks the landing; the answer comes back as OnReserved.
  virtual void AskLanding(uint64_t session, uint64_t transfer, const ReserveRequest& request) = 0;
  virtual void TicketOpened(uint64_t landing_id, uint64_t session, uint64_t transfer) = 0;
  virtual void TicketClosed(uint64_t landing_id) = 0;
  // Hands the commit over; the answer comes back as OnAccepted.
  virtual void AskCommitted(uint64_t session, uint64_t transfer, uint64_t landing_id,
                            const CommitState& state, const std::vector<bool>& in_pool) = 0;
  // The session is over; it is destroyed after this turn.
  virtual void SessionEnded(ReceiverSession* session) = 0;
};

// Belongs to the receiver's thread.
//
// Invariant: KvLanding hears Committed or Aborted once for each grant, and
// after either nothing is written into its blocks.
class ReceiverSession : private FrameStream::Handler {
 public:
  // `transports`: those that the socket serves; the hello chooses. They must
  // outlive the session.
  ReceiverSession(SessionHost* host, uint64_t id, std::span<const Transport* const> transports,
                  UniqueFd socket);
  ~ReceiverSession() override;

  uint64_t id() const { return id_; }
  const std::string& sender_id() const { return sender_id_; }
  uint64_t sender_incarnation() const { return sender_incarnation_; }

  void OnReserved(uint64_t transfer, absl::StatusOr<Grant> grant);
  void OnAccepted(uint64_t transfer, const absl::Status& accepted);
  void Revoke(uint64_t transfer, const absl::Status& reason);
  // Ends the connection; its hand-offs end with `reason`, which the sender is
  // told when `tell`.
  void Shutdown(const absl::Status& reason, bool tell);

 private:
  // kAbandoned: ended before the landing has answered; keeps its place, so that
  // a sender cannot heap up questions.
  enum class Stage { kReserving, kAbandoned, kOpen, kCommitting };
  struct Incoming {
    Stage stage = Stage::kReserving;
    uint32_t prompt_tokens = 0;
    uint32_t blocks = 0;  // ReserveRequest::block_count()
    std::unique_ptr<Ticket> ticket;
    std::shared_ptr<PullsUnderWay> pulls = std::make_shared<PullsUnderWay>();
    EventLoop::Clock::time_point last_frame;
    uint64_t lease_timer = 0;
  };

  absl::StatusOr<PayloadSink*> OnFrame(const baton::v1::HandoffFrame& frame, uint32_t payload_bytes,
                                       UniqueFd passed) override;
  absl::Status OnPayloadEnd() override;
  void OnBatchEnd() override { ReportConsumed(); }
  void OnClosed(const absl::Status& reason) override;

  absl::StatusOr<PayloadSink*> Dispatch(const baton::v1::HandoffFrame& frame,
                                        uint32_t payload_bytes, UniqueFd passed);
  absl::Status OnHello(const baton::v1::HandoffHello& hello, UniqueFd passed);
  absl::Status ChooseTransport(const std::string& name);
  absl::Status OnReserve(const baton::v1::Reserve& reserve);
  absl::StatusOr<PayloadSink*> OnPut(const baton::v1::Put& put, uint32_t payload_bytes);
  void OnPull(const baton::v1::Put& put);
  void OnPulled(const baton::v1::Put& put, std::span<const uint32_t> checksums);
  absl::Status LandPulled(Ticket& ticket, const baton::v1::Put& put,
                          std::span<const uint32_t> checksums) const;
  void OnCommit(const baton::v1::Commit& commit);
  absl::Status CheckCommit(const Incoming& incoming, const baton::v1::Commit& commit) const;

  void SendGranted(uint64_t transfer, const Ticket& ticket);
  // The hand-off, if it takes puts and a commit.
  Incoming* FindOpen(uint64_t transfer);
  // Ends a hand-off with `status`, on both sides.
  void Refuse(uint64_t transfer, const absl::Status& status);
  // Ends it here: the ticket dies, the landing hears of it. No-op for none.
  void End(uint64_t transfer, const absl::Status& reason);
  void ArmLease(uint64_t transfer, EventLoop::Clock::time_point from);
  void OnLease(uint64_t transfer);
  void AddConsumed(uint64_t bytes);
  void ReportConsumed();

  SessionHost* const host_;
  const uint64_t id_;
  const std::span<const Transport* const> transports_;
  const Transport* transport_ = nullptr;  // from the hello on
  FrameStream stream_;
  uint64_t hello_timer_ = 0;
  bool ended_ = false;

  std::string sender_id_;
  uint64_t sender_incarnation_ = 0;
  uint64_t epoch_ = 0;  // 0: has not greeted yet
  std::unique_ptr<PutSource> source_;
  absl::flat_hash_map<uint64_t, Incoming> incoming_;
  // Set from the hello on.
  std::optional<IncomingFormat> format_;
  std::optional<IncomingPut> put_;
  std::optional<CrcJoiner> joiner_;
  uint64_t put_transfer_ = 0;
  uint64_t consumed_ = 0, consumed_transfer_ = 0;  // not reported yet
  uint64_t coming_ = 0;                            // behind the Put, to be reported
};

}  // namespace baton::transport
