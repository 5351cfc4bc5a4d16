// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/handoff_sender.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "prefill_worker/put_plan.h"

namespace baton::prefill_worker {
namespace {

// Large enough that frames cost nothing, small enough that several are in a ring.
constexpr size_t kPutBytes = 2 << 20;
// Of bytes that stay where they are, so that waiting for the receiver costs little.
constexpr size_t kPoolPutBytes = 16 << 20;

std::vector<transport::Endpoint> EndpointsFrom(const v1::Assign& assign) {
  std::vector<transport::Endpoint> endpoints;
  for (const v1::HandoffEndpoint& endpoint : assign.handoff_endpoints()) {
    endpoints.push_back({.transport = endpoint.transport(), .address = endpoint.address()});
  }
  return endpoints;
}

transport::CommitState CommitStateFrom(const engine::HandoffState& state) {
  transport::CommitState commit{.first_tokens = state.first_tokens, .drawn = state.drawn};
  for (const auto& candidate : state.search.candidates) {
    commit.beam_candidates.push_back({candidate.token, candidate.value, candidate.logprob});
  }
  for (const auto& [token, logprob] : state.search.top) {
    commit.top.push_back({token, 0, logprob});
  }
  return commit;
}

}  // namespace

struct HandoffSender::Transfer {
  engine::SequenceRef ref;
  absl::Time begun;
  // Called on the engine's thread alone.
  std::unique_ptr<transport::KvWriter> writer;

  absl::Mutex mutex;
  uint32_t calls ABSL_GUARDED_BY(mutex) = 0;   // of the writer, not ended yet
  bool closed ABSL_GUARDED_BY(mutex) = false;  // no further calls but Abort
  bool committed ABSL_GUARDED_BY(mutex) = false;
  bool finished ABSL_GUARDED_BY(mutex) = false;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // the first one
};

HandoffSender::HandoffSender(MakeKvSender make) : make_(std::move(make)) {}

HandoffSender::~HandoffSender() { sender_.reset(); }

absl::StatusOr<engine::HandoffSender*> HandoffSender::Prepare(const Context& context) {
  const worker::Options& options = *context.options;
  timeout_ = options.handoff_timeout;
  metrics_ = std::make_unique<worker::HandoffMetrics>(context.metrics, context.labels);
  layout_ = context.layout;
  options_.sender_id = options.worker_id;
  options_.host_id = options.host_id;
  options_.device = options.device;
  options_.transports = options.transports;
  return this;
}

absl::Status HandoffSender::Start(engine::Engine* engine) {
  engine_ = engine;
  options_.pool = engine->arena().pool();
  options_.to_host = [this](const auto& places, std::function<void()> done) {
    BringToHost(places, std::move(done));
  };
  if (!worker::KeepsCudaIpc(options_.pool, options_.transports)) {
    std::erase(options_.transports, "cuda_ipc");
  }
  BATON_ASSIGN_OR_RETURN(sender_, make_(options_, layout_));
  return absl::OkStatus();
}

void HandoffSender::Describe(v1::Hello* hello) const {
  for (const std::string& transport : options_.transports) hello->add_transports(transport);
}

absl::Status HandoffSender::Submit(engine::SequenceSpec spec, const v1::Assign& assign) {
  {
    // Before the engine has it: Begin may follow at once.
    absl::MutexLock lock(&mutex_);
    routes_[spec.ref] = EndpointsFrom(assign);
  }
  engine_->Submit(std::move(spec));
  return absl::OkStatus();
}

void HandoffSender::Ended(engine::SequenceRef ref) {
  absl::MutexLock lock(&mutex_);
  routes_.erase(ref);
}

void HandoffSender::Begin(const engine::SequenceSpec& spec) {
  auto transfer = std::make_shared<Transfer>();
  transfer->ref = spec.ref;
  transfer->begun = absl::Now();
  std::vector<transport::Endpoint> endpoints;
  {
    absl::MutexLock lock(&mutex_);
    endpoints = routes_[spec.ref];
    transfers_[spec.ref] = transfer;
  }
  const auto prompt_tokens = static_cast<uint32_t>(spec.prompt.size());
  const transport::ReserveRequest request{
      .handoff_key = spec.handoff_key,
      .prompt_tokens = prompt_tokens,
      .blocks = spec.window.SeenBelow(prompt_tokens, kv::BlocksForTokens(prompt_tokens))};
  const absl::Time deadline = std::min(spec.deadline, transfer->begun + timeout_);
  transfer->writer =
      sender_->Open(endpoints, request, deadline,
                    [this, transfer](const absl::Status& status) { Granted(transfer, status); });
}

void HandoffSender::BlocksReady(engine::SequenceRef ref, uint32_t first_block,
                                std::vector<kv::BlockId> blocks) {
  const TransferPtr transfer = Find(ref);
  if (transfer == nullptr) return;
  const kv::KvArena& arena = engine_->arena();
  std::vector<uint32_t> checksums;  // [block][layer]; empty: the bytes are on the host
  if (transfer->writer->prefers_pool()) {
    const absl::Status ready = arena.BeforePeerReads(blocks, checksums);
    if (!ready.ok()) return NoteFailure(transfer, ready);
  } else {
    arena.BeforeHostReads(blocks);
  }
  const std::vector<transport::PutRange> ranges =
      PlanPuts(arena.layout(), first_block, first_block + static_cast<uint32_t>(blocks.size()),
               checksums.empty() ? kPutBytes : kPoolPutBytes);
  {
    absl::MutexLock lock(&transfer->mutex);
    if (transfer->closed) return;
    transfer->calls += static_cast<uint32_t>(ranges.size());
  }
  for (const transport::PutRange& range : ranges) {
    std::vector<std::span<const std::byte>> sources;
    std::vector<uint32_t> crcs;
    sources.reserve((range.block_end - range.block_begin) * (range.layer_end - range.layer_begin));
    for (uint32_t block = range.block_begin; block < range.block_end; ++block) {
      for (uint32_t layer = range.layer_begin; layer < range.layer_end; ++layer) {
        sources.push_back(arena.LayerSpan(blocks[block - first_block], layer));
        if (checksums.empty()) continue;
        crcs.push_back(checksums[size_t{block - first_block} * layout_.layers + layer]);
      }
    }
    transfer->writer->Put(range, {std::move(sources), std::move(crcs)},
                          [this, transfer](const absl::Status& status) {
                            CallDone(transfer, status, /*committed=*/false);
                          });
  }
}

// The transport turns from the pool to the host.
void HandoffSender::BringToHost(const std::vector<std::span<const std::byte>>& places,
                                std::function<void()> done) {
  std::vector<kv::BlockId> blocks;
  for (const std::span<const std::byte> place : places) {
    const size_t offset = options_.pool->OffsetOf(place).value();
    blocks.push_back(static_cast<kv::BlockId>(offset / layout_.BlockBytes()));
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  engine_->BringToHost(std::move(blocks), std::move(done));
}

void HandoffSender::Commit(engine::SequenceRef ref, const engine::HandoffState& state) {
  const TransferPtr transfer = Find(ref);
  if (transfer == nullptr) return;
  {
    absl::MutexLock lock(&transfer->mutex);
    if (transfer->closed) return;
    transfer->closed = true;
    ++transfer->calls;
  }
  transfer->writer->Commit(CommitStateFrom(state), [this, transfer](const absl::Status& status) {
    CallDone(transfer, status, status.ok());
  });
}

void HandoffSender::Abort(engine::SequenceRef ref, const absl::Status& reason) {
  const TransferPtr transfer = Find(ref);
  if (transfer == nullptr) return;
  {
    absl::MutexLock lock(&transfer->mutex);
    transfer->closed = true;
    if (transfer->failure.ok()) transfer->failure = reason;
  }
  transfer->writer->Abort(reason);
  FinishIfIdle(transfer);
}

HandoffSender::TransferPtr HandoffSender::Find(engine::SequenceRef ref) {
  absl::MutexLock lock(&mutex_);
  const auto it = transfers_.find(ref);
  return it == transfers_.end() ? nullptr : it->second;
}

void HandoffSender::Granted(const TransferPtr& transfer, const absl::Status& status) {
  if (!status.ok()) NoteFailure(transfer, status);
}

void HandoffSender::CallDone(const TransferPtr& transfer, const absl::Status& status,
                             bool committed) {
  if (!status.ok()) NoteFailure(transfer, status);
  {
    absl::MutexLock lock(&transfer->mutex);
    transfer->committed |= committed;
    --transfer->calls;
  }
  FinishIfIdle(transfer);
}

void HandoffSender::NoteFailure(const TransferPtr& transfer, const absl::Status& status) {
  {
    absl::MutexLock lock(&transfer->mutex);
    if (!transfer->failure.ok()) return;
    transfer->failure = status;
    if (transfer->closed) return;
  }
  // Computing on would be for nothing; the engine answers with Abort.
  engine_->Cancel(transfer->ref, status);
}

void HandoffSender::FinishIfIdle(const TransferPtr& transfer) {
  absl::Status status;
  {
    absl::MutexLock lock(&transfer->mutex);
    if (!transfer->closed || transfer->calls > 0 || transfer->finished) return;
    transfer->finished = true;
    if (!transfer->committed) status = transfer->failure;
  }
  {
    absl::MutexLock lock(&mutex_);
    transfers_.erase(transfer->ref);
  }
  const std::string transport = transfer->writer->transport();
  const uint64_t bytes = transfer->writer->bytes();
  metrics_->Count(transport, status.code(), bytes, absl::Now() - transfer->begun);
  engine_->HandoffDone(transfer->ref, status, transport, bytes);
}

}  // namespace baton::prefill_worker
