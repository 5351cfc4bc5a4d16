// SPDX-License-Identifier: Apache-2.0
// baton-prefill-worker: computes prompts and hands their KV to decode workers.
#include "common/config/command_line.h"
#include "common/worker/options.h"
#include "common/worker/worker.h"
#include "prefill_worker/handoff_sender.h"

int main(int argc, char** argv) {
  baton::worker::Options options;
  options.role = baton::worker::WorkerRole::kPrefill;
  baton::config::CommandLine line("baton-prefill-worker",
                                  "Computes prompts and hands their KV to decode workers.");
  baton::worker::AddFlags(line, &options);
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;

  baton::prefill_worker::HandoffSender sender;
  return baton::worker::RunWorker(options, &sender);
}
