// SPDX-License-Identifier: Apache-2.0
#include "common/chat/prompt_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/chat/formats.h"

namespace baton::chat {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<PromptFormat> (*make)(const FormatOptions& options);
};
constexpr Entry kFormats[] = {{"chatglm2", MakeChatGlm2},
                              {"chatglm3", MakeChatGlm3},
                              {"chatml", MakeChatMl},
                              {"llama2", MakeLlama2},
                              {"raw", MakeRaw}};

}  // namespace

absl::StatusOr<ChatRole> ParseChatRole(std::string_view name) {
  if (name == "system") return ChatRole::kSystem;
  if (name == "user") return ChatRole::kUser;
  if (name == "assistant") return ChatRole::kAssistant;
  return absl::InvalidArgumentError(absl::StrCat("role \"", std::string(name.substr(0, 40)),
                                                 "\" is not one of system, user, assistant"));
}

absl::StatusOr<std::unique_ptr<PromptFormat>> MakePromptFormat(std::string_view name,
                                                               const FormatOptions& options) {
  for (const Entry& entry : kFormats) {
    if (entry.name == name) return entry.make(options);
  }
  return absl::NotFoundError(absl::StrCat("no prompt format \"", std::string(name),
                                          "\"; there are ",
                                          absl::StrJoin(PromptFormatNames(), ", ")));
}

std::vector<std::string> PromptFormatNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kFormats) names.emplace_back(entry.name);
  return names;
}

}  // namespace baton::chat
