// SPDX-License-Identifier: Apache-2.0
// `baton make-model`: random weights in a real shape.
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/model_shapes.h"
#include "client/cli/random_model.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

class MakeModelCommand final : public Command {
 public:
  explicit MakeModelCommand(config::CommandLine* line) : Command(line) {
    line->AddChoice("Model", "shape", &shape_, ShapeNames(), "Whose shape");
    line->AddChoice("Model", "weights", &weights_, {"int4", "int8", "f16"},
                    "Type of the weights: Q4_0, Q8_0 or F16");
    line->Add("Model", "seed", &seed_, "Equal seeds give equal files");
    line->AddPositional("FILE", &files_, "The GGUF file to write; must not exist");
  }

  int Run() override {
    const absl::Status status = Make();
    return status.ok() ? kExitOk : Fail(status);
  }

 private:
  absl::Status Make() const {
    if (files_.size() != 1) return absl::InvalidArgumentError("give one FILE to write");
    BATON_ASSIGN_OR_RETURN(const checkpoint::ModelConfig config, FindShape(shape_));
    using checkpoint::TensorType;
    const TensorType type = weights_ == "int4"   ? TensorType::kQ4_0
                            : weights_ == "int8" ? TensorType::kQ8_0
                                                 : TensorType::kF16;
    BATON_RETURN_IF_ERROR(WriteRandomModel(config, type, seed_, files_.front()));
    std::cout << files_.front() << ": random weights in the shape of " << shape_
              << "; it says nothing sensible and has no tokenizer\n";
    return absl::OkStatus();
  }

  std::string shape_ = ShapeNames().front(), weights_ = "int4";
  uint64_t seed_ = 1;
  std::vector<std::string> files_;
};

}  // namespace

std::unique_ptr<Command> MakeMakeModelCommand(config::CommandLine& line) {
  return std::make_unique<MakeModelCommand>(
      line.Command("make-model", "Write a model of random weights, to plan and to measure."));
}

}  // namespace baton::cli
