// SPDX-License-Identifier: Apache-2.0
#include "common/chat/render.h"

#include "absl/strings/str_cat.h"

namespace baton::chat {
namespace {

absl::Status Refuse(size_t index, std::string_view format, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("messages[", index, "]: ", std::string(what),
                                                 " (prompt format ", std::string(format), ")"));
}

}  // namespace

void PromptBuilder::Prefix() {
  ids_.insert(ids_.end(), tokenizer_->prefix().begin(), tokenizer_->prefix().end());
}

absl::Status PromptBuilder::Control(std::string_view name) {
  const std::optional<TokenId> id = tokenizer_->TokenByName(name);
  if (!id.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("the model's tokenizer has no token ",
                                                      std::string(name),
                                                      ", which its prompt format needs"));
  }
  ids_.push_back(*id);
  return absl::OkStatus();
}

void PromptBuilder::Text(std::string_view text) {
  const std::vector<TokenId> ids = tokenizer_->Encode(text);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

absl::Status CheckTurns(const std::vector<Message>& messages, std::string_view format,
                        bool system_first) {
  const size_t first =
      system_first && !messages.empty() && messages.front().role == ChatRole::kSystem ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const ChatRole expected = (i - first) % 2 == 0 ? ChatRole::kUser : ChatRole::kAssistant;
    if (messages[i].role == expected) continue;
    return Refuse(
        i, format,
        absl::StrCat("a message of role ", std::string(RoleName(expected)),
                     " belongs here, not of role ", std::string(RoleName(messages[i].role))));
  }
  if ((messages.size() - first) % 2 == 0) {
    return Refuse(messages.size(), format, "the last message must be the user's");
  }
  return absl::OkStatus();
}

absl::Status CheckAwaitsAnswer(const std::vector<Message>& messages, std::string_view format) {
  if (messages.empty()) return Refuse(0, format, "there is no message");
  if (messages.back().role == ChatRole::kAssistant) {
    return Refuse(messages.size() - 1, format, "the last message must not be the assistant's");
  }
  return absl::OkStatus();
}

std::string_view RoleName(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
  }
  return "";
}

}  // namespace baton::chat
