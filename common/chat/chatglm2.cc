// SPDX-License-Identifier: Apache-2.0
// ChatGLM2: numbered rounds in one text, behind [gMASK] sop. Rounds count from
// 1 and the colons are full-width (tokenization_chatglm.py, build_prompt).
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/formats.h"
#include "common/chat/render.h"

namespace baton::chat {
namespace {

class ChatGlm2 final : public PromptFormat {
 public:
  std::string_view name() const override { return "chatglm2"; }

  absl::StatusOr<std::vector<TokenId>> Render(
      const std::vector<Message>& messages, const tokenizer::Tokenizer& tokenizer) const override {
    BATON_RETURN_IF_ERROR(CheckTurns(messages, name(), /*system_first=*/false));
    std::string text;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == ChatRole::kUser) {
        absl::StrAppend(&text, "[Round ", i / 2 + 1, "]\n\n问：", messages[i].content, "\n\n答：");
      } else {
        absl::StrAppend(&text, messages[i].content, "\n\n");
      }
    }
    PromptBuilder prompt(&tokenizer);
    BATON_RETURN_IF_ERROR(prompt.Control("[gMASK]"));
    BATON_RETURN_IF_ERROR(prompt.Control("sop"));
    prompt.Text(text);
    return prompt.Take();
  }

  bool polishes_answers() const override { return true; }
};

}  // namespace

std::unique_ptr<PromptFormat> MakeChatGlm2(const FormatOptions& /*options*/) {
  return std::make_unique<ChatGlm2>();
}

}  // namespace baton::chat
