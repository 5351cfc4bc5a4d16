// SPDX-License-Identifier: Apache-2.0
// ChatGLM3: each turn is its role's control token, an empty line of metadata
// and the text, encoded apart (tokenization_chatglm.py, build_single_message).
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/formats.h"
#include "common/chat/render.h"

namespace baton::chat {
namespace {

class ChatGlm3 final : public PromptFormat {
 public:
  explicit ChatGlm3(const FormatOptions& options) : default_system_(options.default_system) {}

  std::string_view name() const override { return "chatglm3"; }

  absl::StatusOr<std::vector<TokenId>> Render(
      const std::vector<Message>& messages, const tokenizer::Tokenizer& tokenizer) const override {
    BATON_RETURN_IF_ERROR(CheckAwaitsAnswer(messages, name()));
    PromptBuilder prompt(&tokenizer);
    BATON_RETURN_IF_ERROR(prompt.Control("[gMASK]"));
    BATON_RETURN_IF_ERROR(prompt.Control("sop"));
    if (!default_system_.empty() && messages.front().role != ChatRole::kSystem) {
      BATON_RETURN_IF_ERROR(AddTurn({ChatRole::kSystem, default_system_}, prompt));
    }
    for (const Message& message : messages) BATON_RETURN_IF_ERROR(AddTurn(message, prompt));
    BATON_RETURN_IF_ERROR(prompt.Control("<|assistant|>"));
    return prompt.Take();
  }

  bool polishes_answers() const override { return true; }

 private:
  static absl::Status AddTurn(const Message& message, PromptBuilder& prompt) {
    BATON_RETURN_IF_ERROR(
        prompt.Control(absl::StrCat("<|", std::string(RoleName(message.role)), "|>")));
    prompt.Text("\n");
    prompt.Text(message.content);
    return absl::OkStatus();
  }

  const std::string default_system_;
};

}  // namespace

std::unique_ptr<PromptFormat> MakeChatGlm3(const FormatOptions& options) {
  return std::make_unique<ChatGlm3>(options);
}

}  // namespace baton::chat
