// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/byte_size.h"
#include "common/base/log.h"
#include "common/base/port_file.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/kv/convert/layer_converter.h"
#include "common/kv/memory_budget.h"
#include "common/metrics/metrics.h"
#include "common/rpc/server.h"
#include "common/worker/admin_service.h"
#include "common/worker/kv_budget.h"
#include "common/worker/model_source.h"
#include "common/worker/periodic.h"
#include "common/worker/profile.h"
#include "common/worker/router_links.h"
#include "common/worker/shutdown_signals.h"
#include "common/worker/step_messages.h"
#include "common/worker/timed_model.h"
#include "common/worker/worker_metrics.h"

namespace baton::worker {
namespace {

constexpr uint32_t kProtocolVersion = 2;
// After running sequences were cut off at the end of the drain.
constexpr absl::Duration kCutOffGrace = absl::Seconds(3);
constexpr absl::Duration kFlushPatience = absl::Seconds(2);
constexpr absl::Duration kEndGrace = absl::Seconds(10);
constexpr absl::Duration kTick = absl::Seconds(1);

// In a folder, each worker has a file of its own.
std::string ProfilePath(const Options& options) {
  if (!std::filesystem::is_directory(options.profile)) return options.profile;
  return absl::StrCat(options.profile, "/", std::string(RoleName(options.role)), "-", getpid(),
                      ".json");
}

// The parts of a worker, in the order in which they come to life; they go in
// the opposite one.
class Worker final {
 public:
  Worker(const Options& options, HandoffEnd* handoff) : options_(options), handoff_(handoff) {}
  ~Worker() { Stop(); }

  absl::Status Start();
  // Finishes what runs, within --drain-timeout. Call it once, after Start.
  // INTERNAL: blocks are held that nobody knows of, or are in use twice.
  absl::Status Drain();

 private:
  absl::Status StartEngine(std::unique_ptr<model::Model> model);
  absl::Status StartServers();
  absl::Status StartLinks();
  v1::Hello MakeHello() const;
  bool TakesWindows() const { return options_.windows == "on" && engine_->model().info().windows; }
  void Tick();
  void UpdateReady();
  void LogStart() const;
  void Stop();

  const Options& options_;
  HandoffEnd* const handoff_;
  metrics::Metrics metrics_;
  metrics::Labels labels_;
  std::unique_ptr<WorkerMetrics> worker_metrics_;
  std::unique_ptr<Profile> profile_;  // null: none
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<rpc::Server> server_;
  prefix::Journal journal_;  // of the engine's prefix cache
  std::unique_ptr<grammar::MatcherCache> constraints_;
  std::unique_ptr<RouterLinks> links_;
  std::unique_ptr<ProfiledListener> profiled_;  // null without a profile
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Periodic> ticker_;
  std::atomic<int> attached_{0};
  std::atomic<bool> draining_{false};
  bool handoff_started_ = false;
};

absl::Status Worker::Start() {
  if (!options_.profile.empty()) {
    BATON_ASSIGN_OR_RETURN(
        profile_,
        Profile::Create(ProfilePath(options_),
                        absl::StrCat(std::string(RoleName(options_.role)), " worker ", getpid())));
  }
  // The vocabulary is read while the model is.
  constraints_ =
      std::make_unique<grammar::MatcherCache>([this] { return LoadVocabulary(options_); });
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<model::Model> model,
                         MakeModel(options_, profile_ == nullptr ? nullptr : profile_->parts()));
  labels_ = {{"role", std::string(RoleName(options_.role))}, {"model", model->info().name}};
  worker_metrics_ = std::make_unique<WorkerMetrics>(&metrics_, labels_);
  BATON_RETURN_IF_ERROR(StartServers());
  BATON_RETURN_IF_ERROR(StartEngine(std::move(model)));
  LogStart();
  ticker_ = std::make_unique<Periodic>(kTick, [this] { Tick(); });
  BATON_RETURN_IF_ERROR(StartLinks());
  if (options_.port_file.empty()) return absl::OkStatus();
  Ports ports{.listen = server_->address(), .workers = {}, .metrics = {}};
  if (metrics_.port() != 0) {
    const std::string& asked = options_.metrics_listen;
    ports.metrics = absl::StrCat(asked.substr(0, asked.rfind(':')), ":", metrics_.port());
  }
  return WritePortFile(options_.port_file, ports);
}

absl::Status Worker::StartServers() {
  rpc::ServerOptions server;
  server.listen = options_.listen;
  server.tls = options_.tls;
  admin_ = std::make_unique<AdminService>(options_.worker_id, std::string(RoleName(options_.role)));
  BATON_ASSIGN_OR_RETURN(server_, rpc::Server::Start(server, {{"baton.v1.Admin", admin_.get()}}));
  metrics_.AddProcessMetrics();
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  return metrics_.Serve(options_.metrics_listen);
}

absl::Status Worker::StartEngine(std::unique_ptr<model::Model> model) {
  const kv::KvLayout layout = model->kv_layout();
  BATON_ASSIGN_OR_RETURN(
      const uint32_t blocks,
      PlanKvBlocks({.tokens = options_.kv_tokens, .memory = options_.kv_memory}, layout,
                   model->info().context_tokens, kv::ReadMemoryBudget().available_bytes));
  BATON_ASSIGN_OR_RETURN(
      engine::HandoffSender * sender,
      handoff_->Prepare(
          {.options = &options_, .layout = layout, .metrics = &metrics_, .labels = labels_}));
  links_ = std::make_unique<RouterLinks>(handoff_, worker_metrics_.get(), &journal_);
  engine::Options engine;
  engine.kv_blocks = blocks;
  BATON_ASSIGN_OR_RETURN(
      engine.kv_floor_blocks,
      PlanFloorBlocks(options_.kv_floor, layout, blocks, kv::ReadMemoryBudget().available_bytes));
  engine.kv_return_after = options_.kv_return_after;
  engine.max_sequences = options_.max_sequences;
  engine.max_waiting = options_.max_waiting;
  engine.chunk_tokens = options_.chunk_tokens;
  engine.chunk_stall = options_.chunk_stall;
  engine.policy = options_.policy;
  engine.prefix_cache = options_.prefix_cache == "on";
  engine.prefix_journal = &journal_;
  if (!options_.kv_file.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(options_.kv_file_size);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--kv-file-size: ", std::string(bytes.status().message())));
    }
    engine.block_file = {
        .path = options_.kv_file, .bytes = *bytes, .keep = options_.kv_file_keep, .most_tokens = 0};
  }
  engine.windows = options_.windows == "on";
  if (options_.role == WorkerRole::kDecode) {
    BATON_ASSIGN_OR_RETURN(engine.swap_bytes,
                           PlanSwapBytes(options_.kv_swap, kv::ReadMemoryBudget().available_bytes));
  }
  auto timed = std::make_unique<TimedModel>(
      std::move(model),
      [observer = worker_metrics_.get(), profile = profile_.get()](const StepWork& step) {
        observer->ObserveStep(step.end - step.start);
        if (profile != nullptr) profile->AddStep(step);
      });
  engine::Listener* listener = links_.get();
  if (profile_ != nullptr) {
    profiled_ = std::make_unique<ProfiledListener>(profile_.get(), listener);
    listener = profiled_.get();
  }
  BATON_ASSIGN_OR_RETURN(engine_,
                         engine::Engine::Create(std::move(timed), engine, listener, sender));
  worker_metrics_->Watch(engine_.get());
  admin_->Watch(engine_.get());
  BATON_RETURN_IF_ERROR(handoff_->Start(engine_.get()));
  handoff_started_ = true;
  return absl::OkStatus();
}

absl::Status Worker::StartLinks() {
  const model::ModelInfo& info = engine_->model().info();
  const AssignLimits limits{.role = options_.role,
                            .vocabulary_size = info.vocabulary_size,
                            .context_tokens = info.context_tokens,
                            .windows = TakesWindows(),
                            .draft_tokens = options_.draft_tokens,
                            .constraints = constraints_.get()};
  return links_->Start(engine_.get(), options_.routers, options_.tls, limits, MakeHello(),
                       [this](int attached) {
                         attached_ = attached;
                         UpdateReady();
                       });
}

v1::Hello Worker::MakeHello() const {
  const model::ModelInfo& model = engine_->model().info();
  const kv::KvLayout& layout = engine_->model().kv_layout();
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  v1::WorkerInfo* info = hello.mutable_info();
  info->set_worker_id(options_.worker_id);
  info->set_role(options_.role == WorkerRole::kPrefill ? v1::WORKER_ROLE_PREFILL
                                                       : v1::WORKER_ROLE_DECODE);
  info->set_model(model.name);
  *info->mutable_load() =
      LoadMessage(engine_->load(), layout, ResidentBytes(), engine_->model().device_memory());
  info->set_pid(static_cast<uint32_t>(getpid()));
  info->set_compute(model.compute);
  info->set_threads(model.threads);
  info->set_admin_address(server_->address());
  hello.set_model_fingerprint(layout.model_fingerprint);
  hello.set_vocabulary_size(model.vocabulary_size);
  hello.set_context_tokens(model.context_tokens);
  hello.set_numerics_id(layout.numerics_id);
  hello.set_compute_id(layout.compute_id);
  hello.set_model_variant(layout.model_variant);
  hello.set_kv_type(std::string(kv::KvTypeName(layout.type)));
  hello.set_kv_convertible(kv::IsConvertible(layout));
  hello.set_windows(TakesWindows());
  hello.set_sparse_windows(TakesWindows());
  hello.set_host_id(options_.host_id);
  hello.set_max_sequences(options_.max_sequences);
  handoff_->Describe(&hello);
  return hello;
}

void Worker::LogStart() const {
  const model::ModelInfo& info = engine_->model().info();
  const engine::Load load = engine_->load();
  const uint64_t kv_bytes =
      uint64_t{load.kv_blocks_total} * engine_->model().kv_layout().BlockBytes();
  LogInfo("worker started", {{"version", kVersion},
                             {"role", RoleName(options_.role)},
                             {"worker_id", options_.worker_id},
                             {"model", info.name},
                             {"weights_mib", info.weight_bytes >> 20},
                             {"kv_blocks", load.kv_blocks_total},
                             {"kv_tokens", uint64_t{load.kv_blocks_total} * kv::kBlockTokens},
                             {"kv_mib", kv_bytes >> 20},
                             {"threads", info.threads},
                             {"compute", info.compute},
                             {"listen", server_->address()}});
}

void Worker::Tick() {
  const absl::Time now = absl::Now();
  handoff_->Expire(now);
  server_->SetLive(now - engine_->load().last_progress < options_.liveness_timeout);
}

void Worker::UpdateReady() { server_->SetReady(attached_ > 0 && !draining_); }

absl::Status Worker::Drain() {
  draining_ = true;
  UpdateReady();
  links_->SetDraining();
  auto drained = std::make_shared<absl::Notification>();
  engine_->Drain([drained] { drained->Notify(); });
  if (!drained->WaitForNotificationWithTimeout(options_.drain_timeout)) {
    LogWarning("drain timeout, sequences that still run are cut off");
    links_->CancelAll(absl::UnavailableError("the worker is shutting down"));
    drained->WaitForNotificationWithTimeout(kCutOffGrace);
  }
  links_->Stop(kFlushPatience);
  return engine_->CheckIntegrity();
}

void Worker::Stop() {
  ticker_.reset();
  if (links_ != nullptr) links_->Stop(absl::ZeroDuration());
  if (handoff_started_) handoff_->Stop();
  if (worker_metrics_ != nullptr) worker_metrics_->StopWatching();
  if (admin_ != nullptr) admin_->StopWatching();
  engine_.reset();
  if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
}

absl::Status RunUntilSignal(Options& options, HandoffEnd* handoff, ShutdownSignals& signals) {
  BATON_RETURN_IF_ERROR(Complete(&options));
  Worker worker(options, handoff);
  BATON_RETURN_IF_ERROR(worker.Start());
  absl::Notification stop;
  signals.Handle([&stop] { stop.Notify(); }, options.drain_timeout + kEndGrace);
  stop.WaitForNotification();
  LogInfo("draining");
  return worker.Drain();
}

}  // namespace

int RunWorker(Options options, HandoffEnd* handoff) {
  SetLogProcess(absl::StrCat("baton-", std::string(RoleName(options.role)), "-worker"));
  ShutdownSignals signals;
  const absl::Status status = RunUntilSignal(options, handoff, signals);
  if (!status.ok()) {
    LogError("cannot run", {{"reason", std::string(status.message())}});
    return 1;
  }
  LogInfo("ended");
  return 0;
}

}  // namespace baton::worker
