// SPDX-License-Identifier: Apache-2.0
// How KV blocks travel from a prefill worker into a decode worker's blocks.
//
// Both ends speak the frames of proto/baton/v1/handoff.proto. The transports
// differ only in how the bytes of a Put travel: `cuda_ipc` from GPU memory of the
// sender, which the receiver maps, into its own; `shm` through a ring in shared
// memory that the sender makes and the receiver copies out of; `ucx` through a
// ring of the receiver's that belongs to the connection, by RDMA or whatever
// else UCX finds; `nccl` through such a ring by way of both GPUs; `tcp` behind the
// frame. The receiver does every write into its own blocks, so a late or stale
// sender can never touch them.
//
// Sender and receiver may store KV in different types: the hello says what
// travels, checksums are of that, and the receiver converts what has landed
// into its own blocks (common/kv/convert). Deterministic, but then tokens are
// not those of one worker alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/kv/device_pool.h"
#include "common/kv/layout.h"

namespace baton::transport {

struct Endpoint {
  std::string transport;  // "cuda_ipc", "shm", "ucx", "nccl", "tcp"
  std::string address;    // Unix socket path of the first two; HOST:PORT of the others
};

struct ReserveRequest {
  std::string handoff_key;  // 16 bytes, from the router
  uint32_t prompt_tokens = 0;
  // Blocks that move, of which both ends know which they are; 0: all of the prompt's.
  uint32_t blocks = 0;

  uint32_t block_count() const { return blocks > 0 ? blocks : kv::BlocksForTokens(prompt_tokens); }

  // For the landing. Blocks that are not of kOwn must not be mixed with, or reused
  // as, this worker's own; those of kMixed are for the landing to take or refuse.
  kv::KvOrigin origin = kv::KvOrigin::kOwn;
};

// What travels with a commit beside the KV: handoff.proto, SamplingState.
struct CommitState {
  struct Candidate {
    TokenId token = 0;
    float value = 0, logprob = 0;

    friend bool operator==(const Candidate&, const Candidate&) = default;
  };
  std::vector<TokenId> first_tokens = {};  // of each choice
  uint32_t drawn = 1;
  std::vector<Candidate> beam_candidates = {}, top = {};
};

// The part of a prompt's KV that one Put carries.
struct PutRange {
  uint32_t layer_begin = 0, layer_end = 0;
  uint32_t block_begin = 0, block_end = 0;  // positions among the blocks that move
};

// What a Put sends: one span of LayerBytes() per (block, layer) of its range in the
// order [block][layer].
struct PutSources {
  // NOLINTNEXTLINE(google-explicit-constructor): most sources are nothing but spans.
  PutSources(std::vector<std::span<const std::byte>> where) : spans(std::move(where)) {}
  PutSources(std::vector<std::span<const std::byte>> where, std::vector<uint32_t> crcs)
      : spans(std::move(where)), checksums(std::move(crcs)) {}

  std::vector<std::span<const std::byte>> spans;
  // CRC-32C of each, when the bytes are in SenderOptions::pool alone: then spans of the
  // arena name their places. Empty: the bytes are where the spans are.
  std::vector<uint32_t> checksums;
};

using Done = std::function<void(absl::Status)>;

// One hand-off's sending side: Put* then Commit or Abort.
//
// Thread safety: one caller at a time. Callbacks come on the transport's
// thread, each exactly once: OK; CANCELLED after Abort; DEADLINE_EXCEEDED when
// the lease ended; UNAVAILABLE when the peer is gone; what the receiver
// refused with otherwise. Destroying a writer that was not committed aborts it.
// Calls may come before the ticket is granted; they wait for it in order.
class KvWriter {
 public:
  virtual ~KvWriter() = default;

  // Sends `sources`. `done` means that the sources may be reused, and
  // nothing about the receiver. Blocks that the receiver does not want (it has
  // them cached) are skipped.
  virtual void Put(const PutRange& range, PutSources sources, Done done) = 0;
  // Whether sources in the pool will most likely be sent as they are there. Where not,
  // they had better be on the host before they are put. Any thread.
  virtual bool prefers_pool() const { return false; }

  // Makes the blocks live on the receiver in one step, after every Put. `done`
  // with OK: the decode worker has taken the sequence over.
  // FAILED_PRECONDITION: slices are missing or their digest differs.
  virtual void Commit(const CommitState& state, Done done) = 0;

  // Gives up. Calls in flight end with CANCELLED. Does not block.
  virtual void Abort(const absl::Status& reason) = 0;

  // "cuda_ipc", "shm", "ucx", "nccl" or "tcp"; bytes put so far. Any thread.
  virtual std::string transport() const = 0;
  virtual uint64_t bytes() const = 0;
};

// Makes writers; keeps one connection per receiver and replaces a broken one
// on the next Open. Thread-safe.
class KvSender {
 public:
  virtual ~KvSender() = default;

  // Begins a hand-off to the first endpoint that works. Never blocks and never
  // fails at once: connection and reservation run in the background and their
  // errors end the writer's calls. `granted` hears OK when the ticket is here.
  virtual std::unique_ptr<KvWriter> Open(const std::vector<Endpoint>& endpoints,
                                         const ReserveRequest& request, absl::Time deadline,
                                         Done granted) = 0;
};

// The receiver's blocks for one ticket.
struct Grant {
  // Identifies the hand-off for KvLanding; chosen by the landing.
  uint64_t landing_id = 0;
  // Positions below it are cached here and must not be sent.
  uint32_t first_block = 0;
  // [ReserveRequest::block_count() - first_block]: where each block's bytes
  // stand, all layers, BlockBytes() long.
  std::vector<std::byte*> blocks;
};

// Decides about hand-offs on the receiving worker. Called on the receiver's
// thread; must not block; answers may come from any thread.
class KvLanding {
 public:
  using Granted = std::function<void(absl::StatusOr<Grant>)>;

  virtual ~KvLanding() = default;
  // Blocks for a hand-off; answers when they are reserved. A refusal: NOT_FOUND
  // (unknown key), RESOURCE_EXHAUSTED, FAILED_PRECONDITION.
  virtual void Reserve(const ReserveRequest& request, Granted granted) = 0;
  // Every wanted slice has arrived and the digest fits. The writer hears what
  // `accepted` is given. After this the receiver writes no more. `in_pool`: whether a
  // slice [block][layer] of the grant is in ReceiverOptions::pool instead of the
  // block's own bytes; empty: none is.
  virtual void Committed(uint64_t landing_id, const CommitState& state,
                         const std::vector<bool>& in_pool, Done accepted) = 0;
  // The hand-off ended without a commit, for `reason`; the receiver writes no
  // more. Once per grant that was not committed.
  virtual void Aborted(uint64_t landing_id, const absl::Status& reason) = 0;
};

struct ReceiverOptions {
  std::string receiver_id;
  // Folder for the Unix socket of shm and cuda_ipc, made when it is missing; empty:
  // neither of them.
  // The path stays short (sockaddr_un holds 107 bytes).
  std::string socket_dir;
  // HOST:PORT to listen on for tcp, ucx and nccl, port 0 for any; empty: none of them.
  std::string tcp_address;
  // Which of them. UCX opens ports of its own besides, for bytes, on every
  // network that UCX_NET_DEVICES leaves it.
  bool tcp = true, ucx = false, nccl = false, shm = true, cuda_ipc = false;
  // What the model runs on (--device), for cuda_ipc and nccl.
  std::string device = "cpu";
  // For cuda_ipc: where the blocks of grants are on the device. Outlives the receiver.
  const kv::DevicePool* pool = nullptr;
  // A communicator of nccl that moves nothing for so long is given up; so is cuda_ipc on
  // a connection of which a copy takes so long.
  absl::Duration stall_limit = absl::Seconds(5);
  // What peers are told to dial instead of tcp_address's host, when set; a name
  // is resolved once, here, since senders dial numeric addresses only.
  std::string tcp_advertise_host;
  absl::Duration lease = absl::Seconds(10);
  uint32_t max_connections = 256;
  uint32_t max_open_tickets = 1024;
};

// Listens for senders. One thread.
class KvReceiver {
 public:
  virtual ~KvReceiver() = default;
  // Addresses to announce, best first.
  virtual std::vector<Endpoint> endpoints() const = 0;
  // Ends a granted hand-off: refuses it to the sender with `reason`, then
  // Aborted() follows once the receiver writes no more (unless a commit or
  // abort came first). Any thread; does not block.
  virtual void Revoke(uint64_t landing_id, const absl::Status& reason) = 0;
};

struct SenderOptions {
  std::string sender_id;
  std::string host_id;           // unused endpoints of other hosts are skipped by the router
  std::string device = "cpu";    // what the model runs on (--device), for cuda_ipc and nccl
  size_t ring_bytes = 16 << 20;  // per connection of shm, ucx or nccl; under way on cuda_ipc
  // For cuda_ipc: where sources may be. Outlives the sender.
  const kv::DevicePool* pool = nullptr;
  // Brings the bytes of places in the pool to the host, where they may be read once
  // `done` is called (by any thread; not at all for a writer that was aborted). For a
  // way that does not take them from the pool. Set with `pool`; must not block.
  std::function<void(const std::vector<std::span<const std::byte>>& places,
                     std::function<void()> done)>
      to_host;
  absl::Duration connect_timeout = absl::Seconds(2);
  // When nothing is acknowledged on ucx or nccl for so long, hand-offs go on over
  // its socket (which the kernel looks after).
  absl::Duration stall_limit = absl::Seconds(5);
  // Until another communicator of nccl is tried on the same connection; doubles.
  absl::Duration rebuild_pause = absl::Seconds(5);
  // Which transports may be used, in order of preference.
  std::vector<std::string> transports = {"shm", "tcp"};
  // Blocks are converted to this type before they travel; unset: they travel
  // as they stand, and a receiver of another type converts them.
  std::optional<kv::KvType> wire;
};

// The transports that are built in, best first. ucx is one where its headers
// were installed.
std::vector<std::string> TransportNames();

// Those that a worker on `device` offers unless it is told otherwise: ucx only on
// hosts that have a device for RDMA, for over TCP it has no advantage of plain tcp;
// nccl only on a GPU ("cuda:N"), and where its library works; cuda_ipc on a GPU.
std::vector<std::string> DefaultTransports(const std::string& device);

// `landing` must outlive the receiver. UNAVAILABLE: an address is taken; the
// message names it. MakeSender: FAILED_PRECONDITION when blocks of `layout`
// cannot travel as options.wire.
absl::StatusOr<std::unique_ptr<KvReceiver>> MakeReceiver(const ReceiverOptions& options,
                                                         const kv::KvLayout& layout,
                                                         KvLanding* landing);
absl::StatusOr<std::unique_ptr<KvSender>> MakeSender(const SenderOptions& options,
                                                     const kv::KvLayout& layout);

}  // namespace baton::transport
