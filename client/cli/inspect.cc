// SPDX-License-Identifier: Apache-2.0
// `baton inspect`: what is in a checkpoint.
#include <iostream>
#include <string>

#include "client/cli/command.h"
#include "client/cli/local_model.h"
#include "client/cli/model_report.h"

namespace baton::cli {
namespace {

class InspectCommand final : public Command {
 public:
  explicit InspectCommand(config::CommandLine* line) : Command(line) {
    model_.Register(*line, "GGUF, safetensors or PyTorch file, its folder, or \"embedded\"");
    line->Add("Output", "all", &all_, "Every tensor with type, shape and size");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
  }

  int Run() override {
    const auto checkpoint = model_.Open();
    if (!checkpoint.ok()) return Fail(checkpoint.status());
    const ModelReport report = MakeModelReport(**checkpoint);
    std::cout << (json_ ? ReportToJson(report, all_) : ReportToText(report, all_)) << std::flush;
    return report.problems.empty() ? kExitOk : kExitFailed;
  }

 private:
  ModelFlag model_;
  bool all_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand(config::CommandLine& line) {
  return std::make_unique<InspectCommand>(line.Command(
      "inspect", "Show a model's architecture, tensors, tokenizer and prompt format."));
}

}  // namespace baton::cli
