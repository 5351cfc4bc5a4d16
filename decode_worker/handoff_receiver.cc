// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/handoff_receiver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "decode_worker/socket_folder.h"

namespace baton::decode_worker {
namespace {

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

engine::HandoffState HandoffStateFrom(const transport::CommitState& state) {
  engine::HandoffState handoff{
      .first_tokens = state.first_tokens, .drawn = state.drawn, .search = {}};
  for (const auto& candidate : state.beam_candidates) {
    handoff.search.candidates.push_back({candidate.token, candidate.value, candidate.logprob});
  }
  for (const auto& top : state.top) handoff.search.top.emplace_back(top.token, top.logprob);
  return handoff;
}

}  // namespace

HandoffReceiver::HandoffReceiver(ReceiverFlags flags) : flags_(std::move(flags)) {}

HandoffReceiver::~HandoffReceiver() { Stop(); }

absl::StatusOr<engine::HandoffSender*> HandoffReceiver::Prepare(const Context& context) {
  const worker::Options& options = *context.options;
  layout_ = context.layout;
  transports_ = options.transports;
  timeout_ = options.handoff_timeout;
  metrics_ = std::make_unique<worker::HandoffMetrics>(context.metrics, context.labels);
  options_.receiver_id = options.worker_id;
  options_.lease = flags_.lease;
  options_.tcp_advertise_host = flags_.kv_advertise_host;
  options_.shm = Has(options.transports, "shm");
  options_.cuda_ipc = Has(options.transports, "cuda_ipc");
  if (options_.shm || options_.cuda_ipc) {
    BATON_ASSIGN_OR_RETURN(options_.socket_dir, SocketFolder(flags_.socket_dir));
  }
  options_.ucx = Has(options.transports, "ucx");
  options_.nccl = Has(options.transports, "nccl");
  options_.tcp = Has(options.transports, "tcp");
  options_.device = options.device;
  if (options_.ucx || options_.nccl || options_.tcp) options_.tcp_address = flags_.kv_listen;
  return nullptr;
}

absl::Status HandoffReceiver::Start(engine::Engine* engine) {
  engine_ = engine;
  engine->SetReservationCancelled([this](engine::SequenceRef ref) { ReservationCancelled(ref); });
  options_.pool = engine->arena().pool();
  options_.cuda_ipc = options_.cuda_ipc && worker::KeepsCudaIpc(options_.pool, transports_);
  absl::MutexLock lock(&mutex_);
  BATON_ASSIGN_OR_RETURN(receiver_, transport::MakeReceiver(options_, layout_, this));
  return absl::OkStatus();
}

void HandoffReceiver::Describe(v1::Hello* hello) const {
  absl::MutexLock lock(&mutex_);
  for (const transport::Endpoint& endpoint : receiver_->endpoints()) {
    hello->add_transports(endpoint.transport);
    v1::HandoffEndpoint* announced = hello->add_handoff_endpoints();
    announced->set_transport(endpoint.transport);
    announced->set_address(endpoint.address);
  }
}

absl::Status HandoffReceiver::Submit(engine::SequenceSpec spec, const v1::Assign& assign) {
  if (spec.role != engine::Role::kDecode) {
    engine_->Submit(std::move(spec));
    return absl::OkStatus();
  }
  // One critical section: whoever finds the key finds the sequence submitted.
  absl::MutexLock lock(&mutex_);
  const Expected expected{
      .ref = spec.ref, .give_up = absl::Now() + timeout_, .foreign_kv = assign.foreign_kv()};
  if (!expected_.emplace(spec.handoff_key, expected).second) {
    return absl::AlreadyExistsError("the hand-off key is in use");
  }
  keys_[spec.ref] = spec.handoff_key;
  engine_->Submit(std::move(spec));
  return absl::OkStatus();
}

void HandoffReceiver::Ended(engine::SequenceRef ref) {
  absl::MutexLock lock(&mutex_);
  ForgetExpectedLocked(ref);
}

void HandoffReceiver::ForgetExpectedLocked(engine::SequenceRef ref) {
  const auto it = keys_.find(ref);
  if (it == keys_.end()) return;
  expected_.erase(it->second);
  keys_.erase(it);
}

void HandoffReceiver::Expire(absl::Time now) {
  std::vector<engine::SequenceRef> late;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, expected] : expected_) {
      if (expected.give_up <= now) late.push_back(expected.ref);
    }
  }
  for (const engine::SequenceRef ref : late) {
    engine_->Cancel(ref, absl::DeadlineExceededError(
                             absl::StrCat("no hand-off within ", absl::FormatDuration(timeout_))));
  }
}

void HandoffReceiver::Stop() {
  std::unique_ptr<transport::KvReceiver> receiver;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
    receiver = std::move(receiver_);
  }
  receiver.reset();  // ends its grants through Aborted()
  std::vector<uint64_t> left;
  {
    // Granted to a receiver that was going already.
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, landing] : landings_) left.push_back(id);
  }
  for (const uint64_t id : left) Aborted(id, absl::UnavailableError("the worker stops"));
}

void HandoffReceiver::Reserve(const transport::ReserveRequest& request, Granted granted) {
  std::optional<Expected> expected;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = expected_.find(request.handoff_key);
    if (it != expected_.end()) expected = it->second;
  }
  if (!expected.has_value()) {
    return granted(absl::NotFoundError("no sequence waits for this hand-off"));
  }
  if (request.origin == kv::KvOrigin::kMixed && !expected->foreign_kv) {
    return granted(absl::FailedPreconditionError(
        absl::StrCat("the KV is of other kernels than this worker's ", layout_.compute_id,
                     ", which the router has not allowed for this sequence (--mixed-pairs on)")));
  }
  engine_->Reserve(expected->ref, request.prompt_tokens, request.origin,
                   [this, ref = expected->ref, granted = std::move(granted)](
                       const absl::StatusOr<engine::Engine::Reservation>& reservation) {
                     Reserved(ref, reservation, granted);
                   });
}

void HandoffReceiver::Reserved(engine::SequenceRef ref,
                               const absl::StatusOr<engine::Engine::Reservation>& reservation,
                               const Granted& granted) {
  if (!reservation.ok()) return granted(reservation.status());
  const std::vector<kv::BlockId>& blocks = reservation->blocks;
  transport::Grant grant;
  grant.first_block = reservation->first_block;
  for (const kv::BlockId block : blocks) grant.blocks.push_back(engine_->arena().Layer(block, 0));
  bool stopped = false;
  {
    absl::MutexLock lock(&mutex_);
    stopped = stopped_;
    if (!stopped) {
      grant.landing_id = next_landing_++;
      landings_[grant.landing_id] = {
          .ref = ref, .begun = absl::Now(), .bytes = blocks.size() * layout_.BlockBytes()};
      landing_of_[ref] = grant.landing_id;
    }
  }
  if (stopped) {
    const absl::Status reason = absl::UnavailableError("the worker stops");
    engine_->ReleaseReservation(ref, reason);
    return granted(reason);
  }
  granted(std::move(grant));
}

void HandoffReceiver::ReservationCancelled(engine::SequenceRef ref) {
  absl::MutexLock lock(&mutex_);
  const auto it = landing_of_.find(ref);
  // Not there: its commit or abort is on the way to the engine already.
  if (it == landing_of_.end() || receiver_ == nullptr) return;
  receiver_->Revoke(it->second, absl::CancelledError("the sequence was cancelled"));
}

void HandoffReceiver::Committed(uint64_t landing_id, const transport::CommitState& state,
                                const std::vector<bool>& in_pool, transport::Done accepted) {
  const std::optional<Landing> landing = Take(landing_id);
  if (!landing.has_value()) {
    return accepted(absl::NotFoundError("no such landing"));
  }
  engine_->Activate(
      landing->ref, HandoffStateFrom(state),
      [this, landing = *landing, accepted = std::move(accepted)](absl::Status status) {
        metrics_->Count("received", status.code(), status.ok() ? landing.bytes : 0,
                        absl::Now() - landing.begun);
        accepted(std::move(status));
      },
      in_pool);
}

void HandoffReceiver::Aborted(uint64_t landing_id, const absl::Status& reason) {
  const std::optional<Landing> landing = Take(landing_id);
  if (!landing.has_value()) return;
  metrics_->Count("received", reason.code(), 0, absl::Now() - landing->begun);
  engine_->ReleaseReservation(landing->ref, reason);
}

std::optional<HandoffReceiver::Landing> HandoffReceiver::Take(uint64_t landing_id) {
  absl::MutexLock lock(&mutex_);
  const auto it = landings_.find(landing_id);
  if (it == landings_.end()) return std::nullopt;
  const Landing landing = it->second;
  landings_.erase(it);
  landing_of_.erase(landing.ref);
  // Landed or lost: either way no longer waited for.
  ForgetExpectedLocked(landing.ref);
  return landing;
}

}  // namespace baton::decode_worker
