// SPDX-License-Identifier: Apache-2.0
// baton-decode-worker: takes over computed prompts and generates tokens.
#include "common/config/command_line.h"
#include "common/worker/options.h"
#include "common/worker/worker.h"
#include "decode_worker/handoff_receiver.h"

int main(int argc, char** argv) {
  baton::worker::Options options;
  options.role = baton::worker::WorkerRole::kDecode;
  baton::decode_worker::ReceiverFlags flags;
  baton::config::CommandLine line("baton-decode-worker",
                                  "Takes over computed prompts and generates tokens.");
  baton::worker::AddFlags(line, &options);
  line.Add("Network", "kv-listen", &flags.kv_listen,
           "Address that receives KV over tcp, ucx and nccl");
  line.Add("Network", "kv-advertise-host", &flags.kv_advertise_host,
           "Host that prefill workers dial, if not the one of --kv-listen");
  line.Add("Network", "socket-dir", &flags.socket_dir,
           "Folder of the Unix socket for shared memory; default: /tmp/baton-UID");
  line.Add("Network", "lease", &flags.lease,
           "A sender that is silent for so long loses its hand-off");
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;

  baton::decode_worker::HandoffReceiver receiver(flags);
  return baton::worker::RunWorker(options, &receiver);
}
