// SPDX-License-Identifier: Apache-2.0
// What the formats share when they put a prompt together.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/chat/prompt_format.h"

namespace baton::chat {

// Appends ids: control tokens by name, text through the tokenizer.
class PromptBuilder {
 public:
  // `tokenizer` must outlive the builder.
  explicit PromptBuilder(const tokenizer::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  void Prefix();  // the tokenizer's own
  // FAILED_PRECONDITION when the tokenizer has no such control token.
  absl::Status Control(std::string_view name);
  void Text(std::string_view text);  // user text stays text
  void Token(TokenId id) { ids_.push_back(id); }

  std::vector<TokenId> Take() { return std::move(ids_); }

 private:
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<TokenId> ids_;
};

// INVALID_ARGUMENT, naming the index, unless users and assistants take turns
// and a user begins and ends. System messages: at the front alone where
// `system_first`, else nowhere.
absl::Status CheckTurns(const std::vector<Message>& messages, std::string_view format,
                        bool system_first);

// INVALID_ARGUMENT, naming the index, for no message or an assistant's last.
absl::Status CheckAwaitsAnswer(const std::vector<Message>& messages, std::string_view format);

std::string_view RoleName(ChatRole role);

}  // namespace baton::chat
