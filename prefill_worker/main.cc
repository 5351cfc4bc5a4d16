// SPDX-License-Identifier: Apache-2.0
// baton-prefill-worker: computes prompts and hands their KV to decode workers.
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "common/config/command_line.h"
#include "common/kv/layout.h"
#include "common/transport/fault/fault_sender.h"
#include "common/worker/options.h"
#include "common/worker/worker.h"
#include "prefill_worker/fault_spec.h"
#include "prefill_worker/handoff_sender.h"

namespace {

struct SenderFlags {
  std::string kv_wire = "same";
  std::string fault;
};

// The transport as the flags want it; made to misbehave where --fault asks for it.
baton::prefill_worker::HandoffSender::MakeKvSender SenderWith(const SenderFlags& flags) {
  return [flags](baton::transport::SenderOptions options, const baton::kv::KvLayout& layout)
             -> absl::StatusOr<std::unique_ptr<baton::transport::KvSender>> {
    if (flags.kv_wire != "same") {
      BATON_ASSIGN_OR_RETURN(options.wire, baton::kv::ParseKvType(flags.kv_wire));
    }
    BATON_ASSIGN_OR_RETURN(auto sender, baton::transport::MakeSender(options, layout));
    if (flags.fault.empty()) return sender;
    BATON_ASSIGN_OR_RETURN(const auto plan, baton::prefill_worker::ParseFaultPlan(flags.fault));
    return baton::transport::MakeFaultySender(std::move(sender), plan);
  };
}

}  // namespace

int main(int argc, char** argv) {
  baton::worker::Options options;
  options.role = baton::worker::WorkerRole::kPrefill;
  SenderFlags flags;
  baton::config::CommandLine line("baton-prefill-worker",
                                  "Computes prompts and hands their KV to decode workers.");
  baton::worker::AddFlags(line, &options);
  line.AddChoice("Cluster", "kv-wire", &flags.kv_wire, {"same", "int8"},
                 "KV on its way: as it is stored, or int8, which halves bf16 and rounds");
  line.Add("", "fault", &flags.fault, "Faults of the hand-off, for tests");
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;

  baton::prefill_worker::HandoffSender sender(SenderWith(flags));
  return baton::worker::RunWorker(options, &sender);
}
