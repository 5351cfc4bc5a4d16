// SPDX-License-Identifier: Apache-2.0
// `baton bench model`: tokens per second in this process, what the machine
// allows, and where the time goes.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cli/bench/bench_commands.h"
#include "client/cli/bench/machine.h"
#include "client/cli/bench/model_work.h"
#include "client/cli/bench/speed.h"
#include "client/cli/id_list.h"
#include "client/cli/local_model.h"
#include "common/base/status_macros.h"
#include "common/cores/core_share.h"

namespace baton::cli {
namespace {

// Tells what the machine would allow a result to be.
class Yardstick final {
 public:
  static absl::StatusOr<Yardstick> Create(const checkpoint::Checkpoint& checkpoint,
                                          const model::LoadOptions& options, uint32_t threads,
                                          double seconds) {
    Yardstick yardstick(checkpoint.config(), threads, seconds);
    BATON_ASSIGN_OR_RETURN(yardstick.weights_, checkpoint.Weights());
    BATON_RETURN_IF_ERROR(model::ChooseWeights(options.weights, yardstick.weights_));
    BATON_ASSIGN_OR_RETURN(yardstick.plan_,
                           model::PlanCompute(checkpoint, yardstick.weights_, options));
    yardstick.peaks_ = MeasureInstructions(threads, seconds);
    return yardstick;
  }

  // Weights that stay in the last cache come from there. Measured now, beside
  // the result: memory changes its speed within minutes.
  Roofline Measure(const SpeedResult& result) const {
    const std::vector<MatrixWork> matrices = ListMatrices(weights_, plan_);
    uint64_t bytes = 0;
    for (const MatrixWork& matrix : matrices) bytes += matrix.count * matrix.bytes;
    const CacheSizes caches = ReadCacheSizes();
    const MemoryLevel level = bytes > caches.l3 / 2 ? MemoryLevel::kMemory : MemoryLevel::kL3;
    return RooflineOf(result.work, matrices, config_, plan_, peaks_,
                      Reader(level, threads_, caches).Measure(seconds_).best);
  }

 private:
  Yardstick(const checkpoint::ModelConfig& config, uint32_t threads, double seconds)
      : config_(config), threads_(threads), seconds_(seconds) {}

  checkpoint::ModelConfig config_;
  uint32_t threads_;
  double seconds_;
  checkpoint::ModelWeights weights_;
  model::ComputePlan plan_ = {};
  std::vector<InstructionPeak> peaks_;
};

// Shares of the parts of a step, largest first.
std::vector<std::pair<std::string, double>> PartShares(const model::StepProfile& profile) {
  std::vector<std::pair<std::string, double>> shares;
  double sum = 0;
  for (size_t i = 0; i < model::kStepParts; ++i) {
    const auto part = static_cast<model::StepPart>(i);
    shares.emplace_back(std::string(model::StepPartName(part)), profile.seconds(part));
    sum += profile.seconds(part);
  }
  for (auto& [name, share] : shares) share = sum > 0 ? share / sum : 0;
  std::sort(shares.begin(), shares.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return shares;
}

class BenchModelCommand final : public Command {
 public:
  explicit BenchModelCommand(config::CommandLine* line) : Command(line) {
    model_.Register(*line, "GGUF, safetensors or PyTorch file, its folder, or \"embedded\"");
    compute_.Register(*line);
    line->Add("Work", "pp", &speed_.prompt_tokens, "Tokens of the prompt");
    line->Add("Work", "tg", &speed_.decode_steps, "Steps of decoding");
    line->Add("Work", "tg-context", &speed_.decode_context,
              "Tokens of each sequence before its first step of decoding");
    line->Add("Work", "batch", &batches_, "Sequences that decode together: 1,4,8");
    line->Add("Work", "reps", &speed_.repetitions, "Repetitions; the best counts");
    line->Add("Work", "chunk", &chunk_, "Most tokens of one step");
    line->Add("Work", "pin", &pin_, "One thread on each CPU, as workers do");
    line->Add("Output", "shares", &shares_,
              "Measure the machine, too: the share of what it allows, and of each part of a step");
    line->Add("Work", "seconds", &seconds_, "Seconds of each measurement of the machine");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
  }

  int Run() override {
    const absl::Status status = Measure();
    return status.ok() ? kExitOk : Fail(status);
  }

 private:
  absl::Status Measure() {
    BATON_ASSIGN_OR_RETURN(speed_.batches, ParseIdList("batch", batches_));
    if (chunk_ == 0) return absl::InvalidArgumentError("--chunk must be at least 1");
    BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
    BATON_ASSIGN_OR_RETURN(model::LoadOptions options, compute_.Options());
    options.max_step_tokens = chunk_;
    if (pin_) options.cores = PrivateCores();
    model::StepProfile profile;
    if (shares_) options.profile = speed_.profile = &profile;
    BATON_ASSIGN_OR_RETURN(const auto model, model::LoadModel(*checkpoint, options));
    const model::ModelInfo& info = model->info();
    std::optional<Yardstick> yardstick;
    if (shares_) {
      BATON_ASSIGN_OR_RETURN(yardstick,
                             Yardstick::Create(*checkpoint, options, info.threads, seconds_));
    }
    if (!json_) {
      std::cout << info.name << ": " << info.compute << ", " << info.threads
                << " threads, tokens per second, best of " << speed_.repetitions << "\n";
    }
    nlohmann::ordered_json json;
    const auto report = [&](const SpeedResult& result) {
      std::optional<Roofline> roofline;
      if (yardstick) roofline = yardstick->Measure(result);
      json_ ? AddJson(result, roofline, json) : Print(result, roofline);
    };
    BATON_RETURN_IF_ERROR(MeasureSpeed(model.get(), speed_, report).status());
    if (json_) std::cout << json.dump() << std::endl;
    return absl::OkStatus();
  }

  // All CPUs, shared with nobody; null when that cannot be had.
  static std::shared_ptr<cores::CoreShare> PrivateCores() {
    std::string folder = (std::filesystem::temp_directory_path() / "baton-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return nullptr;
    auto share = cores::CoreShare::Create(cores::Kind::kDecode, folder);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);  // what is open lives on
    if (share.ok()) return *std::move(share);
    return nullptr;
  }

  static void Print(const SpeedResult& result, const std::optional<Roofline>& roofline) {
    std::cout << absl::StreamFormat("%-12s %10.1f", result.name, result.tokens_per_second);
    if (roofline) {
      const double allowed = result.tokens / roofline->seconds();
      std::cout << absl::StreamFormat("  %4.1f%% of %.1f (%s);",
                                      100 * result.tokens_per_second / allowed, allowed,
                                      roofline->limit());
      for (const auto& [name, share] : PartShares(result.profile)) {
        if (share >= 0.005) std::cout << absl::StreamFormat(" %s %.0f%%", name, 100 * share);
      }
    }
    std::cout << std::endl;
  }

  static void AddJson(const SpeedResult& result, const std::optional<Roofline>& roofline,
                      nlohmann::ordered_json& json) {
    json[result.name] = std::round(result.tokens_per_second * 10) / 10;
    if (!roofline) return;
    const double allowed = result.tokens / roofline->seconds();
    nlohmann::ordered_json& shares = json["shares"][result.name];
    const auto rounded = [](double share) { return std::round(share * 1000) / 1000; };
    shares["roofline"] = std::round(allowed * 10) / 10;
    shares["limit"] = roofline->limit();
    shares["of_roofline"] = rounded(result.tokens_per_second / allowed);
    for (const auto& [name, share] : PartShares(result.profile)) {
      shares["time"][name] = rounded(share);
    }
  }

  ModelFlag model_;
  ComputeFlags compute_;
  SpeedOptions speed_;
  std::string batches_ = "1,4,8";
  uint32_t chunk_ = 512;
  double seconds_ = 0.5;
  bool pin_ = true, shares_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchModelCommand(config::CommandLine& bench) {
  return std::make_unique<BenchModelCommand>(
      bench.Command("model", "Measure a model in this process."));
}

}  // namespace baton::cli
