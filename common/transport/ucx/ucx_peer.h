// SPDX-License-Identifier: Apache-2.0
// One connection's UCX worker: progressed by an event loop, torn down whole.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/transport/event_loop.h"
#include "common/transport/ucx/ucx_context.h"

namespace baton::transport {

// A worker of its own for each connection, so that the end of one takes all of
// its queues with it: once a UcxPeer and the UcxMemory that it was the way to are
// gone, nothing of that connection can write anywhere. Belongs to its loop's
// thread; UCX runs on no other thread of ours.
class UcxPeer {
 public:
  using Lost = std::function<void(const absl::Status&)>;

  // `lost`: the other side is gone, or has acknowledged no Put for `stall_limit`;
  // once, from the loop, never inside a call. Tasks given to a peer that is
  // destroyed do not run.
  static absl::StatusOr<std::unique_ptr<UcxPeer>> Make(std::shared_ptr<UcxContext> context,
                                                       EventLoop* loop, absl::Duration stall_limit,
                                                       Lost lost);
  ~UcxPeer();
  UcxPeer(const UcxPeer&) = delete;
  UcxPeer& operator=(const UcxPeer&) = delete;

  // What the other side connects to.
  absl::StatusOr<std::string> Address() const;

  // Copies what comes as messages (see Put) to where it belongs in `memory`, and
  // nowhere else; `arrived` hears of each, inside UCX's call. Before any comes.
  absl::Status TakeMessages(const UcxMemory* memory, EventLoop::Task arrived);

  // Begins to connect, and names the memory that Put writes to. UNAVAILABLE: no
  // transport of UCX leads there.
  absl::Status Connect(const std::string& address, const std::string& key);

  // Copies `bytes` of `memory` at `offset` to address `remote`. `arrived`: they are
  // where the peer can read them, and those of every Put before. In order.
  //
  // By one-sided writes, which UCX confirms, where there are any. Elsewhere (TCP)
  // UCX would emulate them with messages that the peer answers, and UCX 1.13
  // aborts a process that answers a dead peer; so they are plain messages there,
  // and the peer must tell by other means what has come: Acknowledge.
  void Put(const UcxMemory& memory, size_t offset, size_t bytes, uint64_t remote,
           EventLoop::Task arrived);

  // Ends as if the other side were gone for `reason`.
  void Break(const absl::Status& reason) { Fail(reason); }

  // `puts` more messages have come. INVALID_ARGUMENT: there were not so many.
  absl::Status Acknowledge(uint64_t puts);

  // Runs `task` after this turn of the loop.
  void Later(EventLoop::Task task);

  // From Connect on: the transports that the connection goes over, such as
  // "posix/memory" and "rc_mlx5/mlx5_0:1", and whether one of them has one-sided
  // writes.
  const std::vector<std::string>& lanes() const { return lanes_; }
  bool writes() const { return writes_; }

 private:
  struct Pending {
    UcxPeer* peer;
    EventLoop::Task arrived;
    EventLoop::Clock::time_point begun;
    uint64_t remote;            // the message's header
    bool sent = false;          // UCX needs its memory no longer
    bool acknowledged = false;  // the bytes are there
  };

  UcxPeer(std::shared_ptr<UcxContext> context, EventLoop* loop, absl::Duration stall_limit,
          Lost lost)
      : context_(std::move(context)),
        loop_(loop),
        stall_limit_(stall_limit),
        lost_(std::move(lost)) {}
  absl::Status Start();
  void ReadLanes();
  absl::Status Write(const std::byte* from, size_t bytes, ucp_mem_h registered, Pending* pending);
  absl::Status SendMessage(const std::byte* from, size_t bytes, Pending* pending);
  void ScheduleProgress();
  void Progress();
  void RunArrived();
  void ArmStallTimer();
  void Fail(const absl::Status& reason);
  void CloseEndpoint();

  static void OnError(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static void OnPut(void* request, ucs_status_t status, void* self);
  static void OnFlushed(void* request, ucs_status_t status, void* pending);
  static void OnSent(void* request, ucs_status_t status, void* pending);
  static ucs_status_t OnMessage(void* self, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* params);

  const std::shared_ptr<UcxContext> context_;
  EventLoop* const loop_;
  const absl::Duration stall_limit_;
  const Lost lost_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  uint64_t watch_ = 0, stall_timer_ = 0;
  bool progress_scheduled_ = false;
  absl::Status failure_;
  std::vector<std::string> lanes_;
  bool writes_ = false;
  const UcxMemory* target_ = nullptr;  // of messages
  EventLoop::Task message_arrived_;
  std::deque<std::unique_ptr<Pending>> pending_;  // oldest first
};

}  // namespace baton::transport
