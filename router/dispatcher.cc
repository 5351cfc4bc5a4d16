// SPDX-License-Identifier: Apache-2.0
#include "router/dispatcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/kv/window_wire.h"
#include "common/rpc/status.h"
#include "router/prediction.h"

namespace baton::router {
namespace {

constexpr absl::Duration kStallCheck = absl::Milliseconds(250);
// What a prompt token is taken to cost until a worker has measured it.
constexpr absl::Duration kTokenAtFirst = absl::Microseconds(500);

}  // namespace

Dispatcher::Dispatcher(DispatcherOptions options, ModelSlot* model, RouterMetrics* metrics)
    : options_(std::move(options)),
      model_(model),
      metrics_(metrics),
      queue_(options_.queue),
      policy_(*sched::MakePolicy(options_.policy)) {}

void Dispatcher::Submit(Submission submission, absl::Time now) {
  Request& request = requests_[submission.key];
  request.key = submission.key;
  request.spec = std::make_shared<const ValidatedRequest>(std::move(submission.request));
  request.model = std::move(submission.model);
  request.out = std::move(submission.out);
  request.arrival = submission.arrival;
  request.deadline = submission.deadline;
  if (request.spec->time_limit) request.time_end = request.arrival + *request.spec->time_limit;
  policy_->Join(request.spec->tenant);
  if (draining_) {
    const auto status =
        rpc::Retry(absl::StatusCode::kUnavailable, "this router is shutting down; ask another",
                   absl::ZeroDuration());
    return End(request, status, now);
  }
  if (const absl::Status status = request.out->Check(now); !status.ok()) {
    return End(request, status, now);
  }
  if (request.deadline <= now) {
    return End(request, absl::DeadlineExceededError("the deadline has passed already"), now);
  }
  const absl::Status queued = queue_.Push(request.key, request.spec->prompt.size());
  if (!queued.ok()) return End(request, queued, now);
  Arm(std::min(request.deadline, request.time_end));
  Arm(now + kStallCheck);
  Pump(now);
}

void Dispatcher::Cancel(RequestKey key, absl::Time now) {
  const auto found = requests_.find(key);
  if (found == requests_.end()) return;
  End(found->second, absl::CancelledError("the client has gone"), now);
  Pump(now);
}

// A request that waits for room keeps those behind it waiting, or long ones
// would starve. One that waits for a worker of a role that is absent keeps
// nobody.
void Dispatcher::Pump(absl::Time now) {
  for (const RequestKey key : ServiceOrder(now)) {
    if (!TryStart(requests_.at(key), now)) break;
  }
  SetGauges();
}

bool Dispatcher::TryStart(Request& request, absl::Time now) {
  const Pairing pairing = ChoosePair(directory_.Attached(), NeedOf(request));
  switch (pairing.outcome) {
    case Pairing::Outcome::kRun:
      Start(request, pairing, now);
      return true;
    case Pairing::Outcome::kImpossible:
      End(request, rpc::BadField(pairing.field, pairing.detail), now);
      return true;
    case Pairing::Outcome::kBusy:
      request.missing_since.reset();
      return false;
    case Pairing::Outcome::kMissing:
      break;
  }
  if (!request.missing_since.has_value()) request.missing_since = now;
  const absl::Time give_up = *request.missing_since + options_.pair_wait;
  Arm(give_up);
  if (give_up <= now) {
    End(request, rpc::Retry(absl::StatusCode::kUnavailable, pairing.detail, absl::Seconds(1)), now);
  }
  return true;
}

Need Dispatcher::NeedOf(const Request& request) const {
  const ValidatedRequest& spec = *request.spec;
  Need need;
  need.prompt_tokens = spec.prompt.size();
  need.max_tokens = spec.max_tokens;
  need.path = spec.path;
  need.transport = options_.transport;
  need.mixed_pairs = options_.mixed_pairs;
  need.prefix = spec.prefix;
  need.local_stall = options_.local_stall;
  need.handoff = handoff_;
  need.window = spec.window;
  need.width = spec.width;
  need.width_field = spec.WidthField();
  need.search = spec.searches();
  return need;
}

void Dispatcher::Start(Request& request, const Pairing& pairing, absl::Time now) {
  queue_.Remove(request.key);
  request.missing_since.reset();
  const bool split = pairing.prefill != nullptr;
  const uint64_t prompt = request.spec->prompt.size();
  Generation::Route route;
  route.decode_worker = pairing.decode->id();
  route.reason = pairing.reason;
  route.predicted_split = absl::ToDoubleMilliseconds(pairing.predicted_split);
  route.predicted_local = absl::ToDoubleMilliseconds(pairing.predicted_local);
  if (split) route.prefill_worker = pairing.prefill->id();
  route.foreign_kv = pairing.foreign_kv;
  request.generation = std::make_unique<Generation>(request.spec, request.model, request.arrival,
                                                    std::move(route), metrics_);
  // What it grows by later is the worker's affair: see Heartbeat.kv_credit_blocks.
  const Need need = NeedOf(request);
  const uint64_t blocks =
      BlocksToCount(*pairing.decode, need, split ? PromptKv::kHandedOver : PromptKv::kComputed);
  const uint64_t tokens = blocks * pairing.decode->load.kv_block_tokens();
  request.decode_key = directory_.Assign(*pairing.decode, request.key, tokens,
                                         split ? 0 : pairing.compute_tokens, need.width);
  request.started = now;
  metrics_->PromptTokens(prompt);
  if (!pairing.fallback.empty()) metrics_->Fallback(pairing.fallback);
  metrics_->Path(split ? "split" : "local", pairing.reason);
  if (!split) {
    request.state = State::kRunning;
    return SendAssign(request, request.decode_key, v1::Assign::ROLE_WHOLE, now);
  }
  request.state = State::kReserving;
  request.endpoints = pairing.endpoints;
  request.foreign_kv = pairing.foreign_kv;
  request.handoff_key = RandomBytes(16);
  // Counted now, sent when the decode worker has accepted: requests that
  // arrive in between must see it.
  request.prefill_key =
      directory_.Assign(*pairing.prefill, request.key, prompt, pairing.compute_tokens);
  SendAssign(request, request.decode_key, v1::Assign::ROLE_DECODE, now);
}

void Dispatcher::SendAssign(Request& request, SequenceKey key, v1::Assign::Role role,
                            absl::Time now) {
  v1::RouterMessage message;
  v1::Assign* assign = message.mutable_assign();
  assign->set_sequence_key(key);
  assign->set_request_id(request.spec->request_id);
  assign->mutable_prompt_ids()->Add(request.spec->prompt.begin(), request.spec->prompt.end());
  *assign->mutable_sampling() = request.spec->sampling;
  *assign->mutable_decoding() = request.spec->decoding;
  assign->set_max_tokens(request.spec->max_tokens);
  assign->set_min_tokens(request.spec->min_tokens);
  if (request.spec->constraint) *assign->mutable_constraint() = *request.spec->constraint;
  assign->mutable_stop_token_ids()->Add(request.spec->stop_tokens.begin(),
                                        request.spec->stop_tokens.end());
  if (request.deadline != absl::InfiniteFuture()) {
    const int64_t left = absl::ToInt64Milliseconds(request.deadline - now);
    assign->set_deadline_ms(static_cast<uint64_t>(std::max<int64_t>(left, 1)));
  }
  assign->set_role(role);
  assign->set_tenant(request.spec->tenant);
  assign->set_priority(request.spec->priority);
  assign->set_handoff_key(request.handoff_key);
  assign->set_cache_salt(request.spec->cache_salt);
  kv::FillWindow(request.spec->window, assign);
  if (request.spec->draft_tokens) assign->set_draft_tokens(*request.spec->draft_tokens);
  // Neither such KV nor what the decode worker computes itself is to be taken for
  // the other.
  const bool foreign = request.foreign_kv && role == v1::Assign::ROLE_DECODE;
  assign->set_no_prefix_cache(!request.spec->prefix_cache || foreign);
  assign->set_foreign_kv(foreign);
  if (role == v1::Assign::ROLE_PREFILL) {
    assign->mutable_handoff_endpoints()->Add(request.endpoints.begin(), request.endpoints.end());
  }
  directory_.Find(directory_.FindAssignment(key)->worker)->link->Send(std::move(message), now);
}

// Back to its place in the queue; nothing of it has reached the client.
void Dispatcher::Requeue(Request& request, absl::Time now) {
  CancelAssignment(std::exchange(request.decode_key, 0), now);
  CancelAssignment(std::exchange(request.prefill_key, 0), now);
  request.generation.reset();
  request.state = State::kQueued;
  queue_.Return(request.key, request.spec->prompt.size());
}

void Dispatcher::CancelAssignment(SequenceKey key, absl::Time now) {
  Assignment* assignment = directory_.FindAssignment(key);
  if (assignment == nullptr) return;
  assignment->request = 0;
  SendCancel(assignment->worker, key, std::nullopt, now);
}

void Dispatcher::SendCancel(LinkId worker, SequenceKey key, std::optional<uint32_t> choice,
                            absl::Time now) {
  v1::RouterMessage message;
  message.mutable_cancel()->set_sequence_key(key);
  if (choice) message.mutable_cancel()->set_choice(*choice);
  directory_.Find(worker)->link->Send(std::move(message), now);
}

void Dispatcher::End(Request& request, const absl::Status& status, absl::Time now) {
  metrics_->RequestEnded(status.code());
  LogInfo("request ended", {{"request_id", request.spec->request_id},
                            {"code", absl::StatusCodeToString(status.code())},
                            {"detail", std::string(status.message())},
                            {"prompt_tokens", request.spec->prompt.size()},
                            {"total_ms", absl::ToDoubleMilliseconds(now - request.arrival)}});
  Charge(request, now);
  policy_->Leave(request.spec->tenant);
  if (request.state == State::kReserving) {  // the prefill worker knows nothing of it yet
    directory_.Release(std::exchange(request.prefill_key, 0));
  }
  CancelAssignment(request.decode_key, now);
  CancelAssignment(request.prefill_key, now);
  request.out->Finish(status, now);
  lingering_.push_back(std::move(request.out));
  Arm(now + kStallCheck);
  queue_.Remove(request.key);
  requests_.erase(request.key);
}

// For prompt and blocks, by what they take of the decode worker's pool and of a
// prompt's time; what was never started costs nothing.
void Dispatcher::Charge(const Request& request, absl::Time now) {
  if (!policy_->charges() || request.state == State::kQueued) return;
  const Assignment* assignment = directory_.FindAssignment(request.decode_key);
  sched::Usage usage{.compute = JobOf(request, FastestCosts()).work};
  if (assignment != nullptr) {
    const uint64_t pool = directory_.Find(assignment->worker)->load.kv_blocks_total();
    if (pool > 0) {
      usage.pool_seconds = static_cast<double>(assignment->blocks) / static_cast<double>(pool) *
                           absl::ToDoubleSeconds(now - request.started);
    }
  }
  policy_->Charge(request.spec->tenant, usage);
}

// Of the worker that is through a prompt soonest; none before the first measurement.
sched::StepCosts Dispatcher::FastestCosts() const {
  sched::StepCosts fastest;
  absl::Duration least = absl::InfiniteDuration();
  for (const Worker* worker : directory_.Attached()) {
    const auto time = PromptTime(*worker, 0, kChunkTokens);
    if (!time || *time >= least) continue;
    least = *time;
    fastest = CostsOf(*worker);
  }
  return fastest;
}

sched::Job Dispatcher::JobOf(const Request& request, const sched::StepCosts& costs) {
  sched::Job job;
  job.arrival = request.key;
  job.since = request.arrival;
  job.tokens = static_cast<uint32_t>(request.spec->prompt.size());
  job.work = costs.knows_prompts() ? costs.Prompt(0, job.tokens, kChunkTokens)
                                   : job.tokens * kTokenAtFirst;
  job.deadline = request.deadline;
  job.priority = request.spec->priority;
  job.tenant = request.spec->tenant;
  return job;
}

std::vector<RequestKey> Dispatcher::ServiceOrder(absl::Time now) {
  std::vector<RequestKey> order;
  if (queue_.size() == 0) return order;
  const sched::StepCosts costs = FastestCosts();
  std::vector<sched::Job> jobs;
  jobs.reserve(queue_.size());
  for (const auto& [key, tokens] : queue_.waiting()) {
    jobs.push_back(JobOf(requests_.at(key), costs));
  }
  for (const uint32_t index : policy_->Order(jobs, now)) order.push_back(jobs[index].arrival);
  if (!costs.knows_prompts()) return order;
  // The least that any worker has before them.
  absl::Duration busy = absl::InfiniteDuration();
  for (const Worker* worker : directory_.Attached()) {
    if (CostsOf(*worker).knows_prompts()) busy = std::min(busy, QueueTime(*worker));
  }
  for (const sched::Refusal& refusal : policy_->Infeasible(jobs, busy, now)) {
    const RequestKey key = jobs[refusal.job].arrival;
    std::erase(order, key);
    End(requests_.at(key), refusal.status, now);
  }
  return order;
}

void Dispatcher::SendEvents(Request& request, absl::Time now) {
  for (v1::GenerateResponse& event : request.generation->TakeEvents()) {
    request.out->Send(std::move(event), now);
  }
  if (request.generation->finished()) return End(request, absl::OkStatus(), now);
  if (const absl::Status status = request.out->Check(now); !status.ok()) {
    End(request, status, now);
  }
}

// The request's own limit: what there is is the answer.
void Dispatcher::EndInTime(Request& request, absl::Time now) {
  if (request.generation == nullptr || !request.generation->EndInTime(now)) {
    return End(request,
               absl::DeadlineExceededError("stop.time_limit_ms is over before the first token"),
               now);
  }
  SendEvents(request, now);
}

void Dispatcher::Tick(absl::Time now) {
  if (now < next_wake_) return;
  next_wake_ = absl::InfiniteFuture();
  std::vector<std::pair<RequestKey, absl::Status>> ending;
  std::vector<RequestKey> out_of_time;
  for (const auto& [key, request] : requests_) {
    absl::Status status = request.out->Check(now);
    if (status.ok() && request.deadline <= now) {
      status = absl::DeadlineExceededError(request.state == State::kQueued
                                               ? "the deadline passed in the queue"
                                               : "the deadline passed");
    }
    if (status.ok() && request.time_end <= now) out_of_time.push_back(key);
    if (!status.ok()) ending.emplace_back(key, std::move(status));
    Arm(std::min({request.deadline, request.time_end, now + kStallCheck}));
  }
  for (const auto& [key, status] : ending) End(requests_.at(key), status, now);
  for (RequestKey key : out_of_time) EndInTime(requests_.at(key), now);

  std::vector<std::pair<LinkId, absl::Status>> lost;
  for (const auto& [id, worker] : directory_.workers()) {
    absl::Status status = worker.link->Check(now);
    if (status.ok() && now - worker.last_message >= options_.lease) {
      status = absl::UnavailableError(
          absl::StrCat("no message for ", absl::FormatDuration(options_.lease)));
    }
    if (!status.ok()) lost.emplace_back(id, std::move(status));
    Arm(worker.last_message + options_.lease);
  }
  for (const auto& [id, status] : lost) LoseWorker(id, status, now);

  std::erase_if(lingering_, [now](const auto& stream) { return stream->Reap(now); });
  if (!lingering_.empty()) Arm(now + kStallCheck);
  Pump(now);
}

void Dispatcher::EndAll(absl::Time now) {
  draining_ = true;
  while (!requests_.empty()) {
    End(requests_.begin()->second,
        rpc::Retry(absl::StatusCode::kUnavailable,
                   "this router shut down before the answer was complete", absl::ZeroDuration()),
        now);
  }
  while (!directory_.workers().empty()) {
    LoseWorker(directory_.workers().begin()->first,
               absl::UnavailableError("this router is shutting down"), now);
  }
  SetGauges();
}

bool Dispatcher::ready() {
  if (draining_) return false;
  for (const auto& [id, worker] : directory_.workers()) {
    if (worker.attached && !worker.draining && worker.role() == v1::WORKER_ROLE_DECODE) return true;
  }
  return false;
}

void Dispatcher::FillStatus(v1::GetClusterStatusResponse* status) {
  for (const Worker* worker : directory_.Attached()) {
    v1::WorkerInfo* info = status->add_workers();
    *info = worker->hello.info();
    *info->mutable_load() = worker->load;
    info->set_draining(worker->draining);
  }
  status->set_queued_requests(static_cast<uint32_t>(queue_.size()));
  status->set_running_requests(static_cast<uint32_t>(requests_.size() - queue_.size()));
}

void Dispatcher::SetGauges() {
  uint64_t prefill = 0, decode = 0;
  for (const auto& [id, worker] : directory_.workers()) {
    if (worker.attached) (worker.role() == v1::WORKER_ROLE_PREFILL ? prefill : decode) += 1;
  }
  metrics_->SetWorkers(prefill, decode);
  metrics_->SetQueue(queue_.size(), queue_.prompt_tokens());
  metrics_->SetRunning(requests_.size() - queue_.size());
}

}  // namespace baton::router
