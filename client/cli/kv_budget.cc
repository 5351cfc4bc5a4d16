// SPDX-License-Identifier: Apache-2.0
// `baton kv-budget`: bytes per token, and tokens that fit.
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/id_list.h"
#include "client/cli/kv_arithmetic.h"
#include "client/cli/kv_options.h"
#include "client/cli/local_model.h"
#include "common/base/byte_size.h"
#include "common/base/status_macros.h"
#include "common/kv/memory_budget.h"

namespace baton::cli {
namespace {

constexpr uint32_t kCompareContext = 2048;

class KvBudgetCommand final : public Command {
 public:
  explicit KvBudgetCommand(config::CommandLine* line) : Command(line) {
    model_.Register(*line, "Checkpoint whose shape is used, or \"embedded\"");
    line->Add("Model", "layers", &layers_, "Layers");
    line->Add("Model", "kv-heads", &kv_heads_, "KV heads (groups) per layer");
    line->Add("Model", "head-dim", &head_dim_, "Size of a head");
    line->AddChoice("Cache", "dtype", &dtype_, {"bf16", "int8", "f32"}, "Type of the KV cache");
    line->Add("Cache", "context", &context_,
              "Tokens of one sequence; default: the model's context");
    line->Add("Cache", "window", &window_,
              "Latest tokens that stay in sight, a multiple of 32; 0: all");
    line->Add("Cache", "sinks", &sinks_, "With --window: and so many first ones");
    line->Add("Cache", "stride", &stride_, "With --window: and the last 32 of every so many");
    line->Add("Cache", "keep", &keep_, "With --window: and BEGIN-END, such as 64-128; repeatable");
    line->Add("Cache", "prompt", &prompt_,
              "With --window: tokens of it that are a prompt which the same worker computes, with "
              "blocks for all of it; 0: it is handed over, and what is in sight gets blocks");
    line->Add("Cache", "batch", &batch_, "Sequences");
    line->Add("Cache", "memory", &memory_,
              "Memory for the cache, such as 8GiB; \"available\": what this machine has left");
    line->Add("Output", "compare", &compare_,
              "A table instead: other KV heads, types and windows, also of well-known models");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
  }

  int Run() override {
    KvQuestion question;
    if (absl::Status status = Ask(&question); !status.ok()) return Fail(status);
    if (compare_) return Compare(question);
    const absl::StatusOr<KvAnswer> answer = ComputeKv(question);
    if (!answer.ok()) return Fail(answer.status());
    if (json_) {
      std::cout << KvToJson(question, *answer) << std::endl;
    } else {
      std::cout << ExplainKv(question, *answer) << std::flush;
    }
    return kExitOk;
  }

 private:
  int Compare(KvQuestion question) const {
    if (question.context == 0) question.context = kCompareContext;
    const absl::StatusOr<std::string> table = KvOptionsTable(question);
    if (!table.ok()) return Fail(table.status());
    std::cout << *table << std::flush;
    return kExitOk;
  }

  absl::Status Ask(KvQuestion* question) const {
    if (model_.given()) {
      BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
      const checkpoint::ModelConfig& config = checkpoint->config();
      question->layers = config.layers;
      question->kv_heads = config.kv_heads;
      question->head_dim = config.head_dim;
      question->context = config.context;
    } else if (compare_ && !layers_ && !kv_heads_ && !head_dim_) {
      // The well-known models alone.
    } else if (!layers_ || !kv_heads_ || !head_dim_) {
      return absl::InvalidArgumentError(
          "give a model, or --layers, --kv-heads and --head-dim together");
    }
    question->layers = layers_.value_or(question->layers);
    question->kv_heads = kv_heads_.value_or(question->kv_heads);
    question->head_dim = head_dim_.value_or(question->head_dim);
    question->context = context_.value_or(question->context);
    question->batch = batch_;
    question->prompt = prompt_;
    BATON_ASSIGN_OR_RETURN(question->type, kv::ParseKvType(dtype_));
    BATON_RETURN_IF_ERROR(AskWindow(&question->window));
    return AskMemory(question);
  }

  absl::Status AskWindow(kv::Window* window) const {
    window->tokens = window_;
    window->sinks = sinks_;
    window->stride = stride_;
    BATON_ASSIGN_OR_RETURN(const auto ranges, ParseRanges("keep", keep_));
    if (ranges.size() > window->keep.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--keep: at most ", window->keep.size(), " ranges, got ", ranges.size()));
    }
    for (size_t i = 0; i < ranges.size(); ++i) {
      window->keep[i] = {ranges[i].first, ranges[i].second};
    }
    return kv::CheckWindow(*window);
  }

  absl::Status AskMemory(KvQuestion* question) const {
    if (!memory_) return absl::OkStatus();
    if (*memory_ == "available") {
      question->memory_bytes = kv::ReadMemoryBudget().available_bytes;
      return absl::OkStatus();
    }
    absl::StatusOr<uint64_t> bytes = ParseBytes(*memory_);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--memory: ", std::string(bytes.status().message())));
    }
    question->memory_bytes = *bytes;
    return absl::OkStatus();
  }

  ModelFlag model_;
  std::optional<uint32_t> layers_, kv_heads_, head_dim_, context_;
  std::optional<std::string> memory_;
  std::string dtype_ = "bf16";
  std::vector<std::string> keep_;
  uint32_t batch_ = 1, window_ = 0, sinks_ = 0, stride_ = 0, prompt_ = 0;
  bool compare_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeKvBudgetCommand(config::CommandLine& line) {
  return std::make_unique<KvBudgetCommand>(
      line.Command("kv-budget", "Compute the memory that a KV cache takes."));
}

}  // namespace baton::cli
