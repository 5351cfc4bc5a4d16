// SPDX-License-Identifier: Apache-2.0
// `baton status`: workers, load, KV in use; once, or again and again. With
// --kv-dump who holds which KV blocks of a worker.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "client/cli/kv_dump.h"
#include "client/cli/kv_dump_view.h"
#include "client/cli/result_json.h"
#include "client/cli/router_flags.h"
#include "client/cli/status_view.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson WorkerToJson(const WorkerStatus& worker) {
  return {{"id", worker.id},
          {"role", worker.role},
          {"model", worker.model},
          {"compute", worker.compute},
          {"draining", worker.draining},
          {"pid", worker.pid},
          {"admin_address", worker.admin_address},
          {"threads", worker.threads},
          {"waiting_sequences", worker.waiting_sequences},
          {"running_sequences", worker.running_sequences},
          {"queued_prompt_tokens", worker.queued_prompt_tokens},
          {"kv",
           {{"blocks_total", worker.kv_blocks_total},
            {"blocks_free", worker.kv_blocks_free},
            {"blocks_requests", worker.kv_blocks_requests},
            {"blocks_transfers", worker.kv_blocks_transfers},
            {"blocks_prefix_cache", worker.kv_blocks_prefix_cache},
            {"blocks_reclaimable", worker.kv_blocks_reclaimable},
            {"block_tokens", worker.kv_block_tokens},
            {"bytes_total", worker.kv_bytes_total}}},
          {"prefix_cache",
           {{"lookup_tokens", worker.prefix_lookup_tokens},
            {"hit_tokens", worker.prefix_hit_tokens},
            {"evicted_blocks", worker.prefix_evictions}}},
          {"resident_bytes", worker.resident_bytes},
          {"device_memory",
           {{"bytes_total", worker.device_memory.total},
            {"bytes_free", worker.device_memory.free},
            {"bytes_weights", worker.device_memory.weights},
            {"bytes_kv_pool", worker.device_memory.kv_pool},
            {"bytes_step_buffers", worker.device_memory.step_buffers}}},
          {"steps", worker.steps},
          {"prompt_tokens", worker.prompt_tokens},
          {"tokens", worker.tokens},
          {"drafted_tokens", worker.drafted_tokens},
          {"accepted_tokens", worker.accepted_tokens},
          {"preemptions", worker.preemptions},
          {"recomputed_tokens", worker.recomputed_tokens},
          {"swap",
           {{"bytes_used", worker.swap_bytes_used},
            {"bytes_total", worker.swap_bytes_total},
            {"bytes_copied", worker.swapped_bytes}}},
          {"handoff_bytes", worker.handoff_bytes}};
}

OrderedJson ClusterToJson(const ClusterStatus& cluster,
                          const std::vector<ModelDescription>& models) {
  OrderedJson json = {{"version", cluster.version},
                      {"queued_requests", cluster.queued_requests},
                      {"running_requests", cluster.running_requests},
                      {"models", OrderedJson::array()},
                      {"workers", OrderedJson::array()}};
  for (const ModelDescription& model : models) {
    json["models"].push_back({{"name", model.name},
                              {"architecture", model.architecture},
                              {"prompt_format", model.prompt_format},
                              {"vocabulary_size", model.vocabulary_size},
                              {"context_tokens", model.context_tokens},
                              {"has_tokenizer", model.has_tokenizer}});
  }
  for (const WorkerStatus& worker : cluster.workers) {
    json["workers"].push_back(WorkerToJson(worker));
  }
  return json;
}

void PrintTable(const ClusterStatus& cluster, const std::vector<ModelDescription>& models,
                const std::optional<Earlier>& earlier) {
  std::cout << "router " << cluster.version << ": " << cluster.running_requests << " running, "
            << cluster.queued_requests << " queued\n";
  for (const ModelDescription& model : models) {
    std::cout << "model " << model.name << " (" << model.architecture << "): context "
              << model.context_tokens << ", prompt format "
              << (model.prompt_format.empty() ? "none" : model.prompt_format)
              << (model.has_tokenizer ? "" : ", no tokenizer (token ids only)") << "\n";
  }
  std::cout << FormatCluster(cluster, earlier) << std::flush;
}

class StatusCommand final : public Command {
 public:
  explicit StatusCommand(config::CommandLine* line) : Command(line) {
    line->Add("Output", "json", &json_, "One JSON object instead of a table");
    line->Add("Output", "watch", &watch_, "Shows it again every --interval, until Ctrl-C");
    line->Add("Output", "interval", &interval_, "Between two looks of --watch, from 100ms");
    line->Add("Output", "kv-dump", &kv_dump_,
              "Every KV block of each worker instead: who holds it, and why");
    line->Add("Output", "worker", &workers_,
              "With --kv-dump: id of a worker, or HOST:PORT that it has for --listen, where the "
              "router's list does not help; may be repeated; default: all");
    router_.Register(*line);
  }

  int Run() override {
    if (kv_dump_) return DumpKv();
    if (!workers_.empty()) return UsageError("--worker needs --kv-dump");
    const std::unique_ptr<Client> client = router_.Connect();
    if (!watch_) return Show(*client, std::nullopt).second;
    if (interval_ < absl::Milliseconds(100)) {
      std::cerr << "baton: --interval is " << absl::FormatDuration(interval_)
                << "; it must be at least 100ms\n";
      return kExitUsage;
    }
    std::optional<Earlier> earlier;
    while (true) {
      const absl::Time begin = absl::Now();
      // Home, and clear what is below: a terminal shows one table that changes.
      if (!json_ && isatty(STDOUT_FILENO) != 0) std::cout << "\x1b[H\x1b[2J";
      auto [cluster, code] = Show(*client, earlier);
      if (code != kExitOk) return code;
      absl::SleepFor(interval_);
      earlier = Earlier{std::move(cluster), absl::ToDoubleSeconds(absl::Now() - begin)};
    }
  }

 private:
  int DumpKv() {
    if (watch_) return UsageError("--kv-dump and --watch cannot be given together");
    const auto [listed, addresses] = AdminAddresses();
    if (!listed.ok()) return Refuse(listed);
    OrderedJson all = OrderedJson::array();
    for (const std::string& address : addresses) {
      v1::KvDump dump;
      if (const Status status = FetchKvDump(router_.options(), address, &dump); !status.ok()) {
        return Refuse(status);
      }
      if (json_) {
        all.push_back(KvDumpToJson(dump));
      } else {
        std::cout << FormatKvDump(dump) << (address == addresses.back() ? "" : "\n");
      }
    }
    if (json_) std::cout << all.dump(2) << "\n";
    return kExitOk;
  }

  static Status NotFound(const std::string& message) {
    Status status;
    status.code = StatusCode::kNotFound;
    status.message = message;
    return status;
  }

  // Of --worker; ids, and all when there is none, are looked up at the router.
  std::pair<Status, std::vector<std::string>> AdminAddresses() {
    const auto is_address = [](const std::string& worker) {
      return worker.find(':') != std::string::npos;
    };
    if (!workers_.empty() && std::all_of(workers_.begin(), workers_.end(), is_address)) {
      return {{}, workers_};
    }
    const auto [status, cluster] = router_.Connect()->GetClusterStatus();
    if (!status.ok()) return {status, {}};
    std::vector<std::string> wanted = workers_;
    for (const WorkerStatus& worker : cluster.workers) {
      if (workers_.empty()) wanted.push_back(worker.id);
    }
    if (wanted.empty()) return {NotFound("no worker is attached to the router"), {}};
    std::vector<std::string> addresses;
    for (const std::string& worker : wanted) {
      const auto found =
          std::find_if(cluster.workers.begin(), cluster.workers.end(),
                       [&](const WorkerStatus& candidate) { return candidate.id == worker; });
      if (found != cluster.workers.end() && !found->admin_address.empty()) {
        addresses.push_back(found->admin_address);
      } else if (is_address(worker)) {
        addresses.push_back(worker);
      } else {
        return {NotFound("the router does not know where worker " + worker + " listens"), {}};
      }
    }
    return {status, addresses};
  }

  static int Refuse(const Status& status) {
    std::cerr << "baton: " << StatusLine(status) << "\n";
    return kExitFailed;
  }

  std::pair<ClusterStatus, int> Show(Client& client, const std::optional<Earlier>& earlier) {
    auto [status, cluster] = client.GetClusterStatus();
    if (!status.ok()) return {{}, Refuse(status)};
    const auto [models_status, models] = client.ListModels();
    if (!models_status.ok()) return {{}, Refuse(models_status)};
    if (json_) {
      std::cout << ClusterToJson(cluster, models).dump(watch_ ? -1 : 2) << std::endl;
    } else {
      PrintTable(cluster, models, earlier);
    }
    return {std::move(cluster), kExitOk};
  }

  RouterFlags router_;
  bool json_ = false, watch_ = false, kv_dump_ = false;
  std::vector<std::string> workers_;
  absl::Duration interval_ = absl::Seconds(1);
};

}  // namespace

std::unique_ptr<Command> MakeStatusCommand(config::CommandLine& line) {
  return std::make_unique<StatusCommand>(
      line.Command("status", "Show workers, load, and KV memory in use."));
}

}  // namespace baton::cli
