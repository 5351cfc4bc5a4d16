// SPDX-License-Identifier: Apache-2.0
// The dispatcher's side towards workers.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "router/dispatcher.h"

namespace baton::router {
namespace {

constexpr uint32_t kProtocolVersion = 2;

std::string_view RoleName(v1::WorkerRole role) {
  return role == v1::WORKER_ROLE_PREFILL ? "prefill" : "decode";
}

absl::Status LostWorker(const Worker& worker, const absl::Status& reason) {
  return absl::UnavailableError(absl::StrCat(std::string(RoleName(worker.role())), " worker ",
                                             worker.id(),
                                             " was lost: ", std::string(reason.message())));
}

}  // namespace

void Dispatcher::OpenLink(LinkId id, std::shared_ptr<WorkerLink> link, absl::Time now) {
  link->ReadNext();
  directory_.Open(id, std::move(link), now);
  Arm(now + options_.lease);
}

void Dispatcher::OnMessage(LinkId id, const v1::WorkerMessage& message, absl::Time now) {
  Worker* worker = directory_.Find(id);
  if (worker == nullptr) return;
  worker->last_message = now;
  const std::shared_ptr<WorkerLink> link = worker->link;
  if (message.has_hello()) {
    OnHello(*worker, message.hello(), now);
  } else if (!worker->attached) {
    LoseWorker(id, absl::InvalidArgumentError("the first message must be Hello"), now);
  } else if (message.has_heartbeat()) {
    directory_.Heartbeat(*worker, message.heartbeat());
  } else if (message.has_accepted()) {
    OnAccepted(message.accepted(), now);
  } else if (message.has_step()) {
    OnStep(*worker, message.step(), now);
  }
  link->ReadNext();
  // Tokens alone make no room.
  if (!message.has_step() || message.step().ends_size() > 0) Pump(now);
}

void Dispatcher::OnHello(Worker& worker, const v1::Hello& hello, absl::Time now) {
  absl::Status status;
  if (hello.protocol_version() != kProtocolVersion) {
    status = absl::FailedPreconditionError(
        absl::StrCat("worker ", hello.info().worker_id(), " speaks protocol version ",
                     hello.protocol_version(), "; this router speaks ", kProtocolVersion));
  } else if (worker.attached) {
    status = absl::InvalidArgumentError("a second Hello on one stream");
  } else {
    status = model_->Admit(hello);
    if (status.ok()) status = directory_.Attach(worker, hello);
  }
  if (!status.ok()) return LoseWorker(worker.link_id, status, now);
  v1::RouterMessage message;
  v1::Welcome* welcome = message.mutable_welcome();
  welcome->set_router_id(options_.router_id);
  welcome->set_heartbeat_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.heartbeat)));
  welcome->set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.lease)));
  worker.link->Send(std::move(message), now);
  LogInfo("worker attached", {{"worker_id", worker.id()},
                              {"role", RoleName(worker.role())},
                              {"numerics_id", hello.numerics_id()},
                              {"kv_blocks", worker.load.kv_blocks_total()}});
}

void Dispatcher::OnAccepted(const v1::Accepted& accepted, absl::Time now) {
  const Assignment* assignment = directory_.FindAssignment(accepted.sequence_key());
  if (assignment == nullptr) return;
  const auto found = requests_.find(assignment->request);
  if (found == requests_.end()) return;
  Request& request = found->second;
  if (request.state != State::kReserving || request.decode_key != accepted.sequence_key()) return;
  request.state = State::kRunning;
  SendAssign(request, request.prefill_key, v1::Assign::ROLE_PREFILL, now);
}

Dispatcher::Request* Dispatcher::FindBySequence(const Worker& worker, SequenceKey key) {
  const Assignment* assignment = directory_.FindAssignment(key);
  if (assignment == nullptr || assignment->worker != worker.link_id) return nullptr;
  const auto found = requests_.find(assignment->request);
  return found == requests_.end() ? nullptr : &found->second;
}

// Sequences that have ended here while the worker still ran them are found by
// nobody: what comes for them is dropped.
void Dispatcher::OnStep(Worker& worker, const v1::StepOutput& step, absl::Time now) {
  for (const v1::PrefixChanges& changes : step.prefixes()) {
    WorkerDirectory::PrefixesChanged(worker, changes);
  }
  for (const v1::PrefillStarted& started : step.started()) {
    Request* request = FindBySequence(worker, started.sequence_key());
    if (request != nullptr) request->generation->OnStarted(started);
  }
  for (const v1::SequencePromptLogprobs& scored : step.prompt_logprobs()) {
    Request* request = FindBySequence(worker, scored.sequence_key());
    if (request == nullptr || request->generation->finished()) continue;
    const absl::Status status = request->generation->OnPromptLogprobs(scored);
    if (!status.ok()) End(*request, status, now);
  }
  for (const v1::SequenceTokens& tokens : step.tokens()) {
    if (tokens.first_index() == 0) directory_.FirstToken(tokens.sequence_key());
    Request* request = FindBySequence(worker, tokens.sequence_key());
    if (request == nullptr || request->generation->finished()) continue;
    TakeTokens(worker, *request, tokens, now);
  }
  for (const v1::SequenceEnd& end : step.ends()) {
    const Assignment* assignment = directory_.FindAssignment(end.sequence_key());
    if (assignment != nullptr && assignment->worker == worker.link_id) OnSequenceEnd(end, now);
  }
  for (const v1::SequenceTokens& tokens : step.tokens()) {
    Request* request = FindBySequence(worker, tokens.sequence_key());
    if (request != nullptr) SendEvents(*request, now);
  }
}

void Dispatcher::TakeTokens(Worker& worker, Request& request, const v1::SequenceTokens& tokens,
                            absl::Time now) {
  Generation& generation = *request.generation;
  const Source source =
      tokens.sequence_key() == request.decode_key ? Source::kDecode : Source::kPrefill;
  const absl::Status status = generation.OnTokens(source, tokens, now);
  if (!status.ok()) {
    LogError("worker broke the token order",
             {{"worker_id", worker.id()}, {"detail", std::string(status.message())}});
    return End(request, status, now);
  }
  const Assignment* decode = directory_.FindAssignment(request.decode_key);
  for (const uint32_t choice : generation.TakeStopped()) {
    if (decode != nullptr) SendCancel(decode->worker, request.decode_key, choice, now);
  }
  if (decode != nullptr && !request.spec->searches()) {
    const Worker* holder = directory_.Find(decode->worker);
    const uint64_t block = std::max(holder->load.kv_block_tokens(), 1u);
    directory_.Resize(request.decode_key, generation.KvTokens(block));
  }
  if (const auto time = generation.handoff_time(); time && tokens.first_step_unix_us() != 0) {
    handoff_ += (*time - handoff_) / 8;
  }
}

// Both workers end their sequence of a split request, and the two ends come on
// streams of their own in any order. The prefill worker's decides when it ended
// the answer itself (with token 0), or when its failure is why the decode
// worker's sequence was called off.
void Dispatcher::OnSequenceEnd(const v1::SequenceEnd& end, absl::Time now) {
  const RequestKey key = directory_.FindAssignment(end.sequence_key())->request;
  directory_.Release(end.sequence_key());
  const auto found = requests_.find(key);
  if (found == requests_.end()) return;
  Request& request = found->second;
  if (request.generation->finished()) return SendEvents(request, now);
  if (end.sequence_key() == request.decode_key) {
    const bool prefill_runs = request.state == State::kRunning &&
                              directory_.FindAssignment(request.prefill_key) != nullptr;
    if (prefill_runs) return HoldDecodeEnd(request, end, now);
    return ApplyEnd(request, Source::kDecode, end, now);
  }
  const std::optional<v1::SequenceEnd> decode = std::exchange(request.decode_end, std::nullopt);
  const bool handed_off = end.code() == 0 && end.handed_off();
  const bool decides =
      !decode || (end.code() == 0 && !handed_off) ||
      (end.code() != 0 && decode->code() == static_cast<int>(absl::StatusCode::kCancelled));
  if (decides) return ApplyEnd(request, Source::kPrefill, end, now);
  // Never fails for a sequence that was handed over; it names the transport.
  if (handed_off) request.generation->OnEnd(Source::kPrefill, end, now).IgnoreError();
  ApplyEnd(request, Source::kDecode, *decode, now);
}

void Dispatcher::HoldDecodeEnd(Request& request, const v1::SequenceEnd& end, absl::Time now) {
  request.decode_end = end;
  if (end.code() != 0) {  // computing on would be for nothing
    SendCancel(directory_.FindAssignment(request.prefill_key)->worker, request.prefill_key,
               std::nullopt, now);
  }
  SendEvents(request, now);
}

void Dispatcher::ApplyEnd(Request& request, Source source, const v1::SequenceEnd& end,
                          absl::Time now) {
  const absl::Status status = request.generation->OnEnd(source, end, now);
  if (status.ok()) return SendEvents(request, now);
  for (v1::GenerateResponse& event : request.generation->TakeEvents()) {
    request.out->Send(std::move(event), now);
  }
  End(request, status, now);
}

void Dispatcher::CloseLink(LinkId id, absl::Time now) {
  if (directory_.Find(id) == nullptr) return;
  LoseWorker(id, absl::UnavailableError("its stream ended"), now);
  Pump(now);
}

void Dispatcher::LoseWorker(LinkId id, const absl::Status& reason, absl::Time now) {
  const Worker worker = *directory_.Find(id);  // a copy: the directory forgets it first
  const std::vector<RequestKey> affected = directory_.Remove(id);
  worker.link->Close(reason, now);
  LogWarning("worker detached", {{"worker_id", worker.id()},
                                 {"reason", std::string(reason.message())},
                                 {"requests", affected.size()}});
  for (const RequestKey key : affected) {
    const auto found = requests_.find(key);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    const bool prefill = worker.role() == v1::WORKER_ROLE_PREFILL;
    if (prefill && request.generation->handed_over()) {
      const auto end = std::exchange(request.decode_end, std::nullopt);
      if (end) ApplyEnd(request, Source::kDecode, *end, now);
      continue;
    }
    if (prefill && request.state == State::kReserving) {
      Requeue(request, now);
      continue;
    }
    End(request, LostWorker(worker, reason), now);
  }
}

}  // namespace baton::router
