// SPDX-License-Identifier: Apache-2.0
// baton-prefill-worker: computes prompts and hands their KV to decode workers.
#include <string>

#include "common/base/status_macros.h"
#include "common/config/command_line.h"
#include "common/transport/fault/fault_sender.h"
#include "common/worker/options.h"
#include "common/worker/worker.h"
#include "prefill_worker/fault_spec.h"
#include "prefill_worker/handoff_sender.h"

namespace {

// The transport, made to misbehave where --fault asks for it.
baton::prefill_worker::HandoffSender::MakeKvSender SenderWith(const std::string& fault) {
  if (fault.empty()) return baton::transport::MakeSender;
  return [fault](const baton::transport::SenderOptions& options, const baton::kv::KvLayout& layout)
             -> absl::StatusOr<std::unique_ptr<baton::transport::KvSender>> {
    BATON_ASSIGN_OR_RETURN(const auto plan, baton::prefill_worker::ParseFaultPlan(fault));
    BATON_ASSIGN_OR_RETURN(auto sender, baton::transport::MakeSender(options, layout));
    return baton::transport::MakeFaultySender(std::move(sender), plan);
  };
}

}  // namespace

int main(int argc, char** argv) {
  baton::worker::Options options;
  options.role = baton::worker::WorkerRole::kPrefill;
  std::string fault;
  baton::config::CommandLine line("baton-prefill-worker",
                                  "Computes prompts and hands their KV to decode workers.");
  baton::worker::AddFlags(line, &options);
  line.Add("", "fault", &fault, "Faults of the hand-off, for tests");
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;

  baton::prefill_worker::HandoffSender sender(SenderWith(fault));
  return baton::worker::RunWorker(options, &sender);
}
