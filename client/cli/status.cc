// SPDX-License-Identifier: Apache-2.0
// `baton status`: workers, load, KV in use.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/result_json.h"
#include "client/cli/router_flags.h"
#include "client/cli/table.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

Json WorkerToJson(const WorkerStatus& worker) {
  return {{"id", worker.id},
          {"role", worker.role},
          {"model", worker.model},
          {"compute", worker.compute},
          {"draining", worker.draining},
          {"pid", worker.pid},
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
          {"resident_bytes", worker.resident_bytes}};
}

Json ClusterToJson(const ClusterStatus& cluster, const std::vector<ModelDescription>& models) {
  Json json = {{"version", cluster.version},
               {"queued_requests", cluster.queued_requests},
               {"running_requests", cluster.running_requests},
               {"models", Json::array()},
               {"workers", Json::array()}};
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

// Share of the prompts' tokens that were found in the prefix cache.
std::string HitRate(const WorkerStatus& worker) {
  if (worker.prefix_lookup_tokens == 0) return "-";
  return absl::StrCat(worker.prefix_hit_tokens * 100 / worker.prefix_lookup_tokens, "%");
}

void PrintTable(const ClusterStatus& cluster, const std::vector<ModelDescription>& models) {
  std::cout << "router " << cluster.version << ": " << cluster.running_requests << " running, "
            << cluster.queued_requests << " queued\n";
  for (const ModelDescription& model : models) {
    std::cout << "model " << model.name << " (" << model.architecture << "): context "
              << model.context_tokens << ", prompt format "
              << (model.prompt_format.empty() ? "none" : model.prompt_format)
              << (model.has_tokenizer ? "" : ", no tokenizer (token ids only)") << "\n";
  }
  if (cluster.workers.empty()) {
    std::cout << "no workers\n";
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const WorkerStatus& worker : cluster.workers) {
    rows.push_back(
        {worker.id, worker.role, worker.draining ? "draining" : "ready",
         absl::StrCat(worker.running_sequences), absl::StrCat(worker.waiting_sequences),
         absl::StrCat(worker.queued_prompt_tokens),
         absl::StrCat(worker.kv_blocks_total - worker.kv_blocks_free, "/", worker.kv_blocks_total),
         absl::StrCat(worker.kv_blocks_requests, "+", worker.kv_blocks_transfers, "+",
                      worker.kv_blocks_prefix_cache),
         HitRate(worker), FormatBytes(worker.kv_bytes_total), FormatBytes(worker.resident_bytes),
         absl::StrCat(worker.threads), absl::StrCat(worker.pid), worker.compute});
  }
  std::cout << FormatTable(
      {"WORKER", "ROLE", "STATE", "RUNNING", "WAITING", "PROMPT TOKENS", "KV BLOCKS",
       "REQ+XFER+CACHE", "HITS", "KV MEMORY", "RESIDENT", "THREADS", "PID", "COMPUTE"},
      rows);
}

class StatusCommand final : public Command {
 public:
  explicit StatusCommand(config::CommandLine* line) : Command(line) {
    line->Add("Output", "json", &json_, "One JSON object instead of a table");
    router_.Register(*line);
  }

  int Run() override {
    const std::unique_ptr<Client> client = router_.Connect();
    const auto [status, cluster] = client->GetClusterStatus();
    if (!status.ok()) return Refuse(status);
    const auto [models_status, models] = client->ListModels();
    if (!models_status.ok()) return Refuse(models_status);
    if (json_) {
      std::cout << ClusterToJson(cluster, models).dump(2) << std::endl;
    } else {
      PrintTable(cluster, models);
    }
    return kExitOk;
  }

 private:
  static int Refuse(const Status& status) {
    std::cerr << "baton: " << StatusLine(status) << "\n";
    return kExitFailed;
  }

  RouterFlags router_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStatusCommand(config::CommandLine& line) {
  return std::make_unique<StatusCommand>(
      line.Command("status", "Show workers, load, and KV memory in use."));
}

}  // namespace baton::cli
