// SPDX-License-Identifier: Apache-2.0
// ChatML: <|im_start|>role, newline, text, <|im_end|>, newline.
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/formats.h"
#include "common/chat/render.h"

namespace baton::chat {
namespace {

constexpr std::string_view kStart = "<|im_start|>", kEnd = "<|im_end|>";

class ChatMl final : public PromptFormat {
 public:
  explicit ChatMl(const FormatOptions& options) : default_system_(options.default_system) {}

  std::string_view name() const override { return "chatml"; }

  absl::StatusOr<std::vector<TokenId>> Render(
      const std::vector<Message>& messages, const tokenizer::Tokenizer& tokenizer) const override {
    BATON_RETURN_IF_ERROR(CheckAwaitsAnswer(messages, name()));
    PromptBuilder prompt(&tokenizer);
    prompt.Prefix();
    if (!default_system_.empty() && messages.front().role != ChatRole::kSystem) {
      BATON_RETURN_IF_ERROR(AddTurn({ChatRole::kSystem, default_system_}, prompt));
    }
    for (const Message& message : messages) BATON_RETURN_IF_ERROR(AddTurn(message, prompt));
    BATON_RETURN_IF_ERROR(prompt.Control(kStart));
    prompt.Text("assistant\n");
    return prompt.Take();
  }

 private:
  static absl::Status AddTurn(const Message& message, PromptBuilder& prompt) {
    BATON_RETURN_IF_ERROR(prompt.Control(kStart));
    prompt.Text(absl::StrCat(std::string(RoleName(message.role)), "\n", message.content));
    BATON_RETURN_IF_ERROR(prompt.Control(kEnd));
    prompt.Text("\n");
    return absl::OkStatus();
  }

  const std::string default_system_;
};

}  // namespace

std::unique_ptr<PromptFormat> MakeChatMl(const FormatOptions& options) {
  return std::make_unique<ChatMl>(options);
}

}  // namespace baton::chat
