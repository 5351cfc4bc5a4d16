// SPDX-License-Identifier: Apache-2.0
// How a conversation becomes token ids: one format per file, found by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::chat {

enum class ChatRole : uint8_t { kSystem, kUser, kAssistant };

struct Message {
  ChatRole role = ChatRole::kUser;
  std::string content;  // valid UTF-8
};

absl::StatusOr<ChatRole> ParseChatRole(std::string_view name);

// Thread-safe: immutable.
class PromptFormat {
 public:
  virtual ~PromptFormat() = default;
  // "chatglm2", "chatglm3", "chatml", "llama2", "raw".
  virtual std::string_view name() const = 0;
  // INVALID_ARGUMENT when the order of roles does not fit the format; the
  // message names the index.
  virtual absl::StatusOr<std::vector<TokenId>> Render(
      const std::vector<Message>& messages, const tokenizer::Tokenizer& tokenizer) const = 0;
  // Answers go through AnswerPolish, as in the model's own reference.
  virtual bool polishes_answers() const { return false; }
};

// Settings a checkpoint may carry for its format.
struct FormatOptions {
  std::string default_system;  // put first when the conversation has none
};

// NOT_FOUND with the list of names.
absl::StatusOr<std::unique_ptr<PromptFormat>> MakePromptFormat(std::string_view name,
                                                               const FormatOptions& options);
std::vector<std::string> PromptFormatNames();

}  // namespace baton::chat
