// SPDX-License-Identifier: Apache-2.0
// baton-router: front door of a Baton cluster.
#include <pthread.h>

#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/port_file.h"
#include "common/base/status_macros.h"
#include "common/config/command_line.h"
#include "router/router.h"

namespace baton::router {
namespace {

sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

absl::Status Serve(const Options& options, const sigset_t& end_signals) {
  BATON_RETURN_IF_ERROR(Check(options));
  BATON_ASSIGN_OR_RETURN(auto model, ModelSlot::Open(options.model));
  const std::shared_ptr<const ServedModel> served = model->Get();
  BATON_ASSIGN_OR_RETURN(const auto router, Router::Start(options, std::move(model)));
  LogInfo("router started", {{"listen", router->address()},
                             {"workers", router->worker_address()},
                             {"model", served ? served->name : "fake"},
                             {"architecture", served ? served->architecture : ""},
                             {"vocabulary", served ? served->vocabulary : 0},
                             {"context", served ? served->context : 0},
                             {"prompt_format", served ? served->format_name() : ""},
                             {"metrics", router->metrics_address()}});
  if (!options.port_file.empty()) {
    BATON_RETURN_IF_ERROR(WritePortFile(options.port_file, {.listen = router->address(),
                                                            .workers = router->worker_address(),
                                                            .metrics = router->metrics_address()}));
  }
  int number = 0;
  while (sigwait(&end_signals, &number) != 0) {
  }
  // From here on a second signal ends the process at once.
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &end_signals, nullptr);
  router->Drain(options.drain_timeout);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const sigset_t end_signals = BlockEndSignals();  // before any thread starts
  Options options;
  config::CommandLine line("baton-router",
                           "Front door of a Baton cluster: takes requests, pairs workers, "
                           "merges their tokens into one stream.");
  AddFlags(line, &options);
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;
  SetLogProcess("baton-router");
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(options.log_level, level);
  SetLogLevel(level);
  const absl::Status status = Serve(options, end_signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-router: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace baton::router

int main(int argc, char** argv) { return baton::router::Main(argc, argv); }
