// SPDX-License-Identifier: Apache-2.0
#include "common/worker/router_links.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/worker/kv_budget.h"
#include "common/worker/kv_credit.h"
#include "common/worker/step_messages.h"

namespace baton::worker {

RouterLinks::RouterLinks(HandoffEnd* handoff, WorkerMetrics* metrics,
                         const prefix::Journal* journal)
    : handoff_(handoff), metrics_(metrics), journal_(journal) {}

RouterLinks::~RouterLinks() { Stop(absl::ZeroDuration()); }

absl::Status RouterLinks::Start(engine::Engine* engine, const std::vector<std::string>& routers,
                                const rpc::TlsOptions& tls, const AssignLimits& limits,
                                v1::Hello hello, std::function<void(int)> attached) {
  engine_ = engine;
  limits_ = limits;
  hello_ = std::move(hello);
  attached_ = std::move(attached);
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                         rpc::MakeChannelCredentials(tls));
  for (const std::string& router : routers) {
    RouterLink::Hooks hooks;
    hooks.sink = this;
    hooks.hello = [this] { return hello_; };
    hooks.heartbeat = [this](uint64_t owner) { return MakeHeartbeat(owner); };
    hooks.opened = [this](std::shared_ptr<AttachStream> stream) { Opened(std::move(stream)); };
    hooks.attached = [this](uint64_t owner) { Welcomed(owner); };
    hooks.closed = [this](uint64_t owner) { Closed(owner); };
    links_.push_back(
        std::make_unique<RouterLink>(router,
                                     v1::Registry::NewStub(grpc::CreateCustomChannel(
                                         router, credentials, rpc::DefaultChannelArguments())),
                                     std::move(hooks)));
  }
  // Only now: a step for the first link reads the list.
  for (const auto& link : links_) link->Start();
  return absl::OkStatus();
}

void RouterLinks::SetDraining() {
  draining_ = true;
  for (const auto& link : links_) link->LoadChanged();
}

void RouterLinks::CancelAll(const absl::Status& reason) {
  std::vector<uint64_t> owners;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [owner, attached] : streams_) owners.push_back(owner);
  }
  for (const uint64_t owner : owners) engine_->CancelOwner(owner, reason);
}

void RouterLinks::Stop(absl::Duration patience) {
  for (const auto& link : links_) link->Stop(patience);
}

void RouterLinks::OnStep(const engine::StepOutput& output) {
  for (const engine::EndOutput& end : output.ends) {
    handoff_->Ended(end.ref);
    metrics_->CountEnd(end.status.code());
  }
  // First: who hears of an end knows what it left in the cache.
  TellPrefixes();
  for (auto& [owner, step] : SplitByOwner(output)) {
    // A stream that is gone has nobody to tell.
    if (const std::shared_ptr<AttachStream> stream = Find(owner)) stream->Push(std::move(step));
  }
  const bool joined =
      std::any_of(output.tokens.begin(), output.tokens.end(),
                  [](const engine::TokenOutput& token) { return token.first_step_start; });
  if (joined || !output.ends.empty() || !output.started.empty()) {
    for (const auto& link : links_) link->LoadChanged();
  }
}

absl::Status RouterLinks::Assign(uint64_t owner, const v1::Assign& assign) {
  BATON_ASSIGN_OR_RETURN(engine::SequenceSpec spec,
                         SpecFromAssign(assign, owner, limits_, absl::Now()));
  return handoff_->Submit(std::move(spec), assign);
}

void RouterLinks::Cancel(engine::SequenceRef ref, std::optional<uint32_t> choice) {
  const auto reason = absl::CancelledError("cancelled by the router");
  if (choice) return engine_->CancelChoice(ref, *choice, reason);
  engine_->Cancel(ref, reason);
}

v1::Heartbeat RouterLinks::MakeHeartbeat(uint64_t owner) {
  uint32_t routers = 1;
  {
    absl::MutexLock lock(&mutex_);
    routers = std::max(routers, static_cast<uint32_t>(streams_.size()));
  }
  v1::Heartbeat heartbeat;
  const engine::Load load = engine_->load();
  *heartbeat.mutable_load() = LoadMessage(load, engine_->model().kv_layout(), ResidentBytes(),
                                          engine_->model().device_memory());
  heartbeat.set_kv_credit_blocks(KvCredit(load, owner, routers));
  heartbeat.set_draining(draining_);
  return heartbeat;
}

void RouterLinks::Opened(std::shared_ptr<AttachStream> stream) {
  absl::MutexLock lock(&mutex_);
  const uint64_t owner = stream->owner();
  streams_[owner].stream = std::move(stream);
}

void RouterLinks::Welcomed(uint64_t owner) {
  {
    absl::MutexLock lock(&mutex_);
    streams_[owner].welcomed = true;
  }
  TellAttached();
  TellPrefixes();
}

void RouterLinks::Closed(uint64_t owner) {
  {
    absl::MutexLock lock(&mutex_);
    streams_.erase(owner);
  }
  engine_->CancelOwner(owner, absl::UnavailableError("the router's stream ended"));
  TellAttached();
}

void RouterLinks::TellAttached() {
  // In order: the last count told is the last one true.
  absl::MutexLock order(&tell_mutex_);
  int count = 0;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [owner, attached] : streams_) count += attached.welcomed ? 1 : 0;
  }
  metrics_->SetRouters(count);
  attached_(count);
}

void RouterLinks::TellPrefixes() {
  absl::MutexLock order(&prefix_mutex_);
  const uint64_t version = journal_->version();
  std::vector<std::pair<std::shared_ptr<AttachStream>, v1::StepOutput>> news;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [owner, attached] : streams_) {
      if (!attached.welcomed || attached.prefix_version == version) continue;
      const prefix::Changes changes = journal_->Since(attached.prefix_version);
      attached.prefix_version = changes.version;
      news.emplace_back(attached.stream, v1::StepOutput());
      *news.back().second.add_prefixes() = PrefixMessage(changes);
    }
  }
  for (auto& [stream, step] : news) stream->Push(std::move(step));
}

std::shared_ptr<AttachStream> RouterLinks::Find(uint64_t owner) {
  absl::MutexLock lock(&mutex_);
  const auto it = streams_.find(owner);
  return it == streams_.end() ? nullptr : it->second.stream;
}

}  // namespace baton::worker
