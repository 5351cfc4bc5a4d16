// SPDX-License-Identifier: Apache-2.0
// No chat form: one user message, encoded as it is behind the model's prefix.
#include "common/base/status_macros.h"
#include "common/chat/formats.h"
#include "common/chat/render.h"

namespace baton::chat {
namespace {

class Raw final : public PromptFormat {
 public:
  std::string_view name() const override { return "raw"; }

  absl::StatusOr<std::vector<TokenId>> Render(
      const std::vector<Message>& messages, const tokenizer::Tokenizer& tokenizer) const override {
    BATON_RETURN_IF_ERROR(CheckTurns(messages, name(), /*system_first=*/false));
    if (messages.size() > 1) {
      return absl::InvalidArgumentError(
          "messages[1]: the model has no chat form, so it takes one user message "
          "(prompt format raw)");
    }
    PromptBuilder prompt(&tokenizer);
    prompt.Prefix();
    prompt.Text(messages.front().content);
    return prompt.Take();
  }
};

}  // namespace

std::unique_ptr<PromptFormat> MakeRaw(const FormatOptions& /*options*/) {
  return std::make_unique<Raw>();
}

}  // namespace baton::chat
