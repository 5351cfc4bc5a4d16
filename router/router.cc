// SPDX-License-Identifier: Apache-2.0
#include "router/router.h"

#include <google/protobuf/stubs/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "router/clock.h"

namespace baton::router {
namespace {

// Requests that wait for the tokenizer; those in the queue are bounded apart.
constexpr size_t kMaxWaitingTasks = 1024;
// A worker may leave more unread than a client: what it reads is work.
constexpr StreamLimits kWorkerStream{8 << 20, absl::Seconds(10)};
// gRPC itself refuses what is larger than this many times the limit; up to
// there the answer is ours and names the limit.
constexpr uint64_t kMessageSlack = 4;
constexpr absl::Duration kLastCalls = absl::Seconds(1);

}  // namespace

Router::Router(const Options& options, std::unique_ptr<ModelSlot> model)
    : options_(options),
      router_metrics_(&metrics_),
      calls_([this](int64_t streams) { router_metrics_.SetStreams(streams); }),
      model_(std::move(model)),
      dispatcher_(MakeDispatcherOptions(options), model_.get(), &router_metrics_) {}

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const Options& options,
                                                      std::unique_ptr<ModelSlot> model) {
  BATON_RETURN_IF_ERROR(Check(options));
  // Parsing errors go to the client; the library would print each.
  google::protobuf::SetLogHandler(nullptr);
  std::unique_ptr<Router> router(new Router(options, std::move(model)));
  Router* self = router.get();
  router->metrics_.AddProcessMetrics();
  router->thread_ = std::make_unique<DispatcherThread>(&router->dispatcher_, [self](bool ready) {
    if (self->started_) self->server_->SetReady(ready);
  });
  router->pool_ = std::make_unique<TaskPool>(options.tokenizer_threads, kMaxWaitingTasks);
  router->inference_ = std::make_unique<InferenceService>(
      MakeInferenceOptions(options),
      InferenceService::Parts{router->model_.get(), router->thread_.get(), router->pool_.get(),
                              &router->calls_, &router->router_metrics_});
  router->registry_ =
      std::make_unique<RegistryService>(router->thread_.get(), &router->calls_, kWorkerStream);
  BATON_RETURN_IF_ERROR(router->Listen());
  // A worker may have attached before the server was known here.
  router->thread_->Run([self](Dispatcher& core, absl::Time) {
    self->started_ = true;
    self->server_->SetReady(core.ready());
  });
  if (!options.metrics_listen.empty()) {
    BATON_RETURN_IF_ERROR(router->metrics_.Serve(options.metrics_listen));
  }
  return router;
}

absl::Status Router::Listen() {
  rpc::ServerOptions server;
  server.tls = options_.tls;
  server.reflection = options_.reflection;
  server.max_message_bytes = kMessageSlack * options_.max_message_bytes;
  server.listen = options_.listen;
  std::vector<rpc::NamedService> api = {{"baton.v1.Inference", inference_.get()}};
  const rpc::NamedService registry = {"baton.v1.Registry", registry_.get()};
  if (options_.worker_listen.empty()) api.push_back(registry);
  BATON_ASSIGN_OR_RETURN(server_, rpc::Server::Start(server, api));
  if (options_.worker_listen.empty()) return absl::OkStatus();
  server.listen = options_.worker_listen;
  server.listen_flag = "--worker-listen";
  BATON_ASSIGN_OR_RETURN(worker_server_, rpc::Server::Start(server, {registry}));
  worker_server_->SetReady(true);
  return absl::OkStatus();
}

std::string Router::worker_address() const {
  return worker_server_ != nullptr ? worker_server_->address() : address();
}

std::string Router::metrics_address() const {
  if (options_.metrics_listen.empty()) return "";
  return absl::StrCat(options_.metrics_listen.substr(0, options_.metrics_listen.rfind(':')), ":",
                      metrics_.port());
}

Router::~Router() {
  if (server_ != nullptr && !drained_) Drain(absl::ZeroDuration());
}

void Router::Drain(absl::Duration timeout) {
  drained_ = true;
  const absl::Time deadline = SteadyNow() + timeout;
  LogInfo("router draining", {{"timeout_s", absl::ToDoubleSeconds(timeout)}});
  thread_->Run([](Dispatcher& core, absl::Time) { core.Drain(); });
  const bool finished = thread_->WaitIdle(deadline);
  thread_->Run([](Dispatcher& core, absl::Time now) { core.EndAll(now); });
  // Streams whose client does not take the end are cut off by the shutdown.
  calls_.WaitNone(kLastCalls);
  server_->Shutdown(kLastCalls);
  if (worker_server_ != nullptr) worker_server_->Shutdown(kLastCalls);
  pool_.reset();
  thread_.reset();
  LogInfo("router stopped", {{"all_finished", finished}});
}

}  // namespace baton::router
