// SPDX-License-Identifier: Apache-2.0
// From a checkpoint to the served model.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "router/served_model.h"

namespace baton::router {
namespace {

absl::Status SetFormat(const checkpoint::Checkpoint& checkpoint, const std::string& wanted,
                       ServedModel& model) {
  if (model.tokenizer == nullptr) {
    if (wanted.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--prompt-format needs a tokenizer, and this checkpoint has none: it serves ids alone");
  }
  auto detected = checkpoint.DetectChatFormat();
  if (!detected.ok() && wanted.empty()) {
    return absl::Status(
        detected.status().code(),
        absl::StrCat("set --prompt-format: ", std::string(detected.status().message())));
  }
  chat::FormatOptions format_options;
  std::string name = wanted;
  if (detected.ok() && (wanted.empty() || wanted == detected->name)) {
    name = detected->name;
    format_options = detected->options;
  }
  BATON_ASSIGN_OR_RETURN(model.format, chat::MakePromptFormat(name, format_options));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSlot>> ModelSlot::Open(const ModelChoice& choice) {
  if (choice.model == "fake") return std::make_unique<ModelSlot>(nullptr, choice.name);
  BATON_ASSIGN_OR_RETURN(auto checkpoint, checkpoint::OpenCheckpoint(choice.model));
  const checkpoint::ModelConfig& config = checkpoint->config();
  auto model = std::make_shared<ServedModel>();
  model->name = !choice.name.empty() ? choice.name : config.name;
  model->architecture = config.architecture;
  model->vocabulary = config.vocabulary;
  model->context = config.context;
  model->fingerprint = checkpoint->Fingerprint();
  model->end_tokens = config.end_tokens;
  BATON_ASSIGN_OR_RETURN(model->tokenizer, checkpoint->LoadTokenizer());
  BATON_RETURN_IF_ERROR(SetFormat(*checkpoint, choice.prompt_format, *model));
  return std::make_unique<ModelSlot>(std::move(model));
}

}  // namespace baton::router
