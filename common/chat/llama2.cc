// SPDX-License-Identifier: Apache-2.0
// Llama 2's chat form: <s>[INST] question [/INST] answer </s> per round, with
// the system message inside the first question (meta-llama/llama, generation.py).
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/formats.h"
#include "common/chat/polish.h"
#include "common/chat/render.h"

namespace baton::chat {
namespace {

class Llama2 final : public PromptFormat {
 public:
  explicit Llama2(const FormatOptions& options) : default_system_(options.default_system) {}

  std::string_view name() const override { return "llama2"; }

  absl::StatusOr<std::vector<TokenId>> Render(
      const std::vector<Message>& messages, const tokenizer::Tokenizer& tokenizer) const override {
    BATON_RETURN_IF_ERROR(CheckTurns(messages, name(), /*system_first=*/true));
    const bool has_system = messages.front().role == ChatRole::kSystem;
    const std::string& system = has_system ? messages.front().content : default_system_;
    PromptBuilder prompt(&tokenizer);
    for (size_t i = has_system ? 1 : 0; i < messages.size(); i += 2) {
      const bool first = i <= 1;
      std::string text =
          absl::StrCat("[INST] ", Question(messages[i], first ? system : ""), " [/INST]");
      const bool answered = i + 1 < messages.size();
      if (answered) {
        absl::StrAppend(&text, " ", std::string(StripSpace(messages[i + 1].content)), " ");
      }
      BATON_RETURN_IF_ERROR(prompt.Control("<s>"));
      prompt.Text(text);
      if (answered) BATON_RETURN_IF_ERROR(prompt.Control("</s>"));
    }
    return prompt.Take();
  }

 private:
  // The question as the reference strips it: together with the system message.
  static std::string Question(const Message& message, const std::string& system) {
    if (system.empty()) return std::string(StripSpace(message.content));
    const std::string whole = absl::StrCat("<<SYS>>\n", system, "\n<</SYS>>\n\n", message.content);
    return std::string(StripSpace(whole));
  }

  const std::string default_system_;
};

}  // namespace

std::unique_ptr<PromptFormat> MakeLlama2(const FormatOptions& options) {
  return std::make_unique<Llama2>(options);
}

}  // namespace baton::chat
