// SPDX-License-Identifier: Apache-2.0
// Workers that are attached, what they hold for this router, and their load.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/worker.pb.h"
#include "router/links.h"
#include "router/request_queue.h"

namespace baton::router {

// Names one attachment; a worker that comes back gets a new one.
using LinkId = uint64_t;
using SequenceKey = uint64_t;

struct Worker {
  LinkId link_id = 0;
  std::shared_ptr<WorkerLink> link;
  absl::Time last_message;
  bool attached = false;  // Hello was accepted
  bool draining = false;
  v1::Hello hello;
  v1::WorkerLoad load;

  // What this router has assigned and not seen end.
  uint32_t own_sequences = 0;
  uint64_t own_blocks = 0;
  uint64_t own_prompt_tokens = 0;  // whose first token has not come
  // What others hold, as of the last heartbeat.
  uint32_t foreign_sequences = 0;
  uint64_t foreign_blocks = 0;
  uint64_t foreign_prompt_tokens = 0;
  // Digests of the blocks in its prefix cache, as it tells them.
  absl::flat_hash_set<uint64_t> prefixes;
  // Blocks that this router's sequences may hold there, when the worker says so:
  // then foreign_blocks is of no account.
  std::optional<uint64_t> credit_blocks;

  const std::string& id() const { return hello.info().worker_id(); }
  v1::WorkerRole role() const { return hello.info().role(); }
  uint32_t sequences() const { return own_sequences + foreign_sequences; }
  uint64_t queued_prompt_tokens() const { return own_prompt_tokens + foreign_prompt_tokens; }
  // KV blocks for `tokens`; 0 when the worker has not said its block size.
  uint64_t BlocksFor(uint64_t tokens) const;
  // False only for a worker whose whole pool is too small.
  bool CanEverHold(uint64_t blocks) const;
  // Tokens of a prompt, given as prefix::DigestChain, that its cache has.
  uint64_t CachedTokens(std::span<const uint64_t> chain) const;
  // Blocks for `width` answers of `outputs` tokens to one prompt, which share what
  // they have in common (kv::BlocksForBranches).
  uint64_t BlocksForBranches(uint64_t prompt, uint64_t outputs, uint32_t width) const;
  // `seats` sequence slots, and `blocks` within the credit, are free now.
  bool HasRoomFor(uint64_t blocks, uint32_t seats) const;
};

// One sequence on one worker.
struct Assignment {
  LinkId worker = 0;
  RequestKey request = 0;  // 0: the request has ended, the worker has not yet
  uint64_t blocks = 0;
  uint32_t seats = 1;
  uint64_t prompt_tokens = 0;  // 0 once the first token has come
};

// Accounts by assignment, so that a worker's free room is known between its
// heartbeats. An assignment lives until the worker ends the sequence or is
// lost, whatever becomes of its request.
// Thread safety: none.
class WorkerDirectory final {
 public:
  void Open(LinkId id, std::shared_ptr<WorkerLink> link, absl::Time now);
  // Takes a worker's Hello. ALREADY_EXISTS: a live worker has the id;
  // INVALID_ARGUMENT names what is missing in the Hello.
  absl::Status Attach(Worker& worker, const v1::Hello& hello);
  void Heartbeat(Worker& worker, const v1::Heartbeat& heartbeat);
  // Beyond a bound, what is added is ignored.
  static void PrefixesChanged(Worker& worker, const v1::PrefixChanges& changes);
  // Forgets a worker. Returns the requests that had sequences there.
  std::vector<RequestKey> Remove(LinkId id);

  // Null when there is none.
  Worker* Find(LinkId id);
  std::map<LinkId, Worker>& workers() { return workers_; }
  // Those that are attached.
  std::vector<Worker*> Attached();
  std::vector<const Worker*> Attached() const;

  // A sequence that holds blocks for `tokens`, and `seats` sequence slots.
  SequenceKey Assign(Worker& worker, RequestKey request, uint64_t tokens, uint64_t prompt_tokens,
                     uint32_t seats = 1);
  Assignment* FindAssignment(SequenceKey key);
  // The prompt is computed.
  void FirstToken(SequenceKey key);
  // The sequence holds blocks for `tokens` tokens by now, prompt and output.
  void Resize(SequenceKey key, uint64_t tokens);
  // The worker has ended the sequence.
  void Release(SequenceKey key);

 private:
  std::map<LinkId, Worker> workers_;
  std::map<SequenceKey, Assignment> assignments_;
  SequenceKey last_key_ = 0;
};

}  // namespace baton::router
