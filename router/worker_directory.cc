// SPDX-License-Identifier: Apache-2.0
#include "router/worker_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/prefix/block_hash.h"

namespace baton::router {
namespace {

constexpr size_t kMostPrefixes = 1 << 17;  // of a worker

uint64_t Excess(uint64_t all, uint64_t part) { return all > part ? all - part : 0; }

absl::Status CheckHello(const v1::Hello& hello) {
  const v1::WorkerInfo& info = hello.info();
  if (info.worker_id().empty()) return absl::InvalidArgumentError("Hello has no worker_id");
  if (info.role() != v1::WORKER_ROLE_PREFILL && info.role() != v1::WORKER_ROLE_DECODE) {
    return absl::InvalidArgumentError(
        absl::StrCat("Hello of worker ", info.worker_id(), " has no known role"));
  }
  for (const v1::HandoffEndpoint& endpoint : hello.handoff_endpoints()) {
    // A wildcard is an address to listen on; whoever dials it reaches itself.
    if (absl::StartsWith(endpoint.address(), "0.0.0.0:") ||
        absl::StartsWith(endpoint.address(), "[::]:")) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", info.worker_id(), " advertises ", endpoint.address(),
                       " for hand-offs, which no other host can dial"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t Worker::BlocksFor(uint64_t tokens) const {
  const uint64_t block = load.kv_block_tokens();
  return block == 0 ? 0 : (tokens + block - 1) / block;
}

uint64_t Worker::BlocksForBranches(uint64_t prompt, uint64_t outputs, uint32_t width) const {
  const uint64_t block = load.kv_block_tokens();
  if (width == 1 || block == 0) return BlocksFor(prompt + outputs);
  return prompt / block + width * BlocksFor(prompt % block + outputs);
}

bool Worker::CanEverHold(uint64_t blocks) const {
  return load.kv_blocks_total() == 0 || blocks <= load.kv_blocks_total();
}

uint64_t Worker::CachedTokens(std::span<const uint64_t> chain) const {
  // A cache never drops a block before those that follow it.
  const auto end = std::partition_point(
      chain.begin(), chain.end(), [this](uint64_t digest) { return prefixes.contains(digest); });
  return static_cast<uint64_t>(end - chain.begin()) * prefix::kBlockTokens;
}

bool Worker::HasRoomFor(uint64_t blocks, uint32_t seats) const {
  if (hello.max_sequences() > 0 && sequences() + seats > hello.max_sequences()) return false;
  if (load.kv_blocks_total() == 0) return true;
  if (credit_blocks) return blocks + own_blocks <= *credit_blocks;
  return blocks + own_blocks + foreign_blocks <= load.kv_blocks_total();
}

void WorkerDirectory::Open(LinkId id, std::shared_ptr<WorkerLink> link, absl::Time now) {
  Worker& worker = workers_[id];
  worker.link_id = id;
  worker.link = std::move(link);
  worker.last_message = now;
}

absl::Status WorkerDirectory::Attach(Worker& worker, const v1::Hello& hello) {
  if (absl::Status status = CheckHello(hello); !status.ok()) return status;
  for (const auto& [id, other] : workers_) {
    if (other.attached && other.id() == hello.info().worker_id()) {
      return absl::AlreadyExistsError(absl::StrCat("worker id ", other.id(),
                                                   " is taken by a live worker with pid ",
                                                   other.hello.info().pid()));
    }
  }
  worker.attached = true;
  worker.hello = hello;
  worker.load = hello.info().load();
  worker.draining = hello.info().draining();
  return absl::OkStatus();
}

void WorkerDirectory::Heartbeat(Worker& worker, const v1::Heartbeat& heartbeat) {
  worker.draining = heartbeat.draining();
  if (heartbeat.has_kv_credit_blocks()) worker.credit_blocks = heartbeat.kv_credit_blocks();
  if (!heartbeat.has_load()) return;
  const v1::WorkerLoad& load = worker.load = heartbeat.load();
  // The prefix cache gives its blocks up when they are needed.
  const uint64_t used =
      Excess(load.kv_blocks_total(), load.kv_blocks_free() + load.kv_blocks_reclaimable());
  worker.foreign_blocks = Excess(used, worker.own_blocks);
  worker.foreign_prompt_tokens = Excess(load.queued_prompt_tokens(), worker.own_prompt_tokens);
  worker.foreign_sequences = static_cast<uint32_t>(
      Excess(load.waiting_sequences() + load.running_sequences(), worker.own_sequences));
}

void WorkerDirectory::PrefixesChanged(Worker& worker, const v1::PrefixChanges& changes) {
  if (changes.reset()) worker.prefixes.clear();
  for (const uint64_t digest : changes.removed()) worker.prefixes.erase(digest);
  for (const uint64_t digest : changes.added()) {
    if (worker.prefixes.size() >= kMostPrefixes) return;
    worker.prefixes.insert(digest);
  }
}

std::vector<RequestKey> WorkerDirectory::Remove(LinkId id) {
  std::vector<RequestKey> requests;
  for (auto it = assignments_.begin(); it != assignments_.end();) {
    if (it->second.worker != id) {
      ++it;
      continue;
    }
    if (it->second.request != 0) requests.push_back(it->second.request);
    it = assignments_.erase(it);
  }
  workers_.erase(id);
  return requests;
}

Worker* WorkerDirectory::Find(LinkId id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

std::vector<Worker*> WorkerDirectory::Attached() {
  std::vector<Worker*> attached;
  for (auto& [id, worker] : workers_) {
    if (worker.attached) attached.push_back(&worker);
  }
  return attached;
}

std::vector<const Worker*> WorkerDirectory::Attached() const {
  std::vector<const Worker*> attached;
  for (const auto& [id, worker] : workers_) {
    if (worker.attached) attached.push_back(&worker);
  }
  return attached;
}

SequenceKey WorkerDirectory::Assign(Worker& worker, RequestKey request, uint64_t tokens,
                                    uint64_t prompt_tokens, uint32_t seats) {
  const SequenceKey key = ++last_key_;
  const Assignment assignment{worker.link_id, request, worker.BlocksFor(tokens), seats,
                              prompt_tokens};
  worker.own_sequences += seats;
  worker.own_blocks += assignment.blocks;
  worker.own_prompt_tokens += prompt_tokens;
  assignments_.emplace(key, assignment);
  return key;
}

Assignment* WorkerDirectory::FindAssignment(SequenceKey key) {
  const auto found = assignments_.find(key);
  return found == assignments_.end() ? nullptr : &found->second;
}

void WorkerDirectory::FirstToken(SequenceKey key) {
  Assignment* assignment = FindAssignment(key);
  if (assignment == nullptr) return;
  if (Worker* worker = Find(assignment->worker)) {
    worker->own_prompt_tokens -= assignment->prompt_tokens;
  }
  assignment->prompt_tokens = 0;
}

void WorkerDirectory::Resize(SequenceKey key, uint64_t tokens) {
  Assignment* assignment = FindAssignment(key);
  if (assignment == nullptr) return;
  Worker* worker = Find(assignment->worker);
  if (worker == nullptr) return;
  const uint64_t blocks = worker->BlocksFor(tokens);
  worker->own_blocks -= assignment->blocks;
  worker->own_blocks += blocks;
  assignment->blocks = blocks;
}

void WorkerDirectory::Release(SequenceKey key) {
  Assignment* assignment = FindAssignment(key);
  if (assignment == nullptr) return;
  FirstToken(key);
  if (Worker* worker = Find(assignment->worker)) {
    worker->own_sequences -= assignment->seats;
    worker->own_blocks -= assignment->blocks;
  }
  assignments_.erase(key);
}

}  // namespace baton::router
