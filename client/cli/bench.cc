// SPDX-License-Identifier: Apache-2.0
// `baton bench model`: tokens per second in this process.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/id_list.h"
#include "client/cli/local_model.h"
#include "client/cli/speed.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

class BenchModelCommand final : public Command {
 public:
  explicit BenchModelCommand(config::CommandLine* bench)
      : BenchModelCommand(bench, bench->Command("model", "Measure a model in this process.")) {}

  int Run() override {
    if (!model_chosen_->chosen()) return UsageError("what? Write `baton bench model`");
    const absl::Status status = Measure();
    return status.ok() ? kExitOk : Fail(status);
  }

 private:
  BenchModelCommand(config::CommandLine* bench, config::CommandLine* line)
      : Command(bench), model_chosen_(line) {
    model_.Register(*line, "GGUF, safetensors or PyTorch file, its folder, or \"embedded\"");
    compute_.Register(*line);
    line->Add("Work", "pp", &speed_.prompt_tokens, "Tokens of the prompt");
    line->Add("Work", "tg", &speed_.decode_steps, "Steps of decoding");
    line->Add("Work", "tg-context", &speed_.decode_context,
              "Tokens of each sequence before its first step of decoding");
    line->Add("Work", "batch", &batches_, "Sequences that decode together: 1,4,8");
    line->Add("Work", "reps", &speed_.repetitions, "Repetitions; the best counts");
    line->Add("Work", "chunk", &chunk_, "Most tokens of one step");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
  }

  absl::Status Measure() {
    BATON_ASSIGN_OR_RETURN(speed_.batches, ParseIdList("batch", batches_));
    if (chunk_ == 0) return absl::InvalidArgumentError("--chunk must be at least 1");
    BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
    BATON_ASSIGN_OR_RETURN(model::LoadOptions options, compute_.Options());
    options.max_step_tokens = chunk_;
    BATON_ASSIGN_OR_RETURN(const auto model, model::LoadModel(*checkpoint, options));
    const model::ModelInfo& info = model->info();
    if (!json_) {
      std::cout << info.name << ": " << info.compute << ", " << info.threads
                << " threads, tokens per second, best of " << speed_.repetitions << "\n";
    }
    BATON_ASSIGN_OR_RETURN(const std::vector<SpeedResult> results,
                           MeasureSpeed(model.get(), speed_, [this](const SpeedResult& result) {
                             if (json_) return;
                             std::cout << absl::StreamFormat("%-12s %10.1f\n", result.first,
                                                             result.second)
                                       << std::flush;
                           }));
    if (json_) {
      nlohmann::ordered_json json;
      for (const auto& [name, speed] : results) json[name] = std::round(speed * 10) / 10;
      std::cout << json.dump() << std::endl;
    }
    return absl::OkStatus();
  }

  config::CommandLine* model_chosen_;
  ModelFlag model_;
  ComputeFlags compute_;
  SpeedOptions speed_;
  std::string batches_ = "1,4,8";
  uint32_t chunk_ = 512;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand(config::CommandLine& line) {
  return std::make_unique<BenchModelCommand>(line.Command("bench", "Measure speed."));
}

}  // namespace baton::cli
