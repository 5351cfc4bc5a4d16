// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/chat_template.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::checkpoint {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Removes a newline at the front, real or spelled \n as in a quoted string.
bool DropNewline(std::string_view& text) {
  for (std::string_view newline : {"\n", "\\n"}) {
    if (!text.starts_with(newline)) continue;
    text.remove_prefix(newline.size());
    return true;
  }
  return false;
}

// The first system message that stands in the template word for word. Where
// the message comes from a variable, the quoted string ends before it.
std::string DefaultChatMlSystem(std::string_view chat_template) {
  constexpr std::string_view kBegin = "<|im_start|>system", kEnd = "<|im_end|>";
  for (size_t at = chat_template.find(kBegin); at != std::string_view::npos;
       at = chat_template.find(kBegin, at + 1)) {
    std::string_view rest = chat_template.substr(at + kBegin.size());
    if (!DropNewline(rest)) continue;
    const std::string_view message = rest.substr(0, rest.find(kEnd));
    if (message.size() == rest.size()) break;  // no end in sight
    if (!message.empty() && message.find_first_of("'\"{}") == std::string_view::npos) {
      return std::string(message);
    }
  }
  return {};
}

}  // namespace

absl::StatusOr<Checkpoint::ChatFormat> RecognizeChatTemplate(std::string_view chat_template,
                                                             std::string_view source) {
  if (Contains(chat_template, "<|im_start|>") && Contains(chat_template, "<|im_end|>")) {
    return Checkpoint::ChatFormat{"chatml", {DefaultChatMlSystem(chat_template)}};
  }
  if (Contains(chat_template, "[INST]") && Contains(chat_template, "<<SYS>>")) {
    return Checkpoint::ChatFormat{"llama2", {}};
  }
  if (Contains(chat_template, "[Round ") && Contains(chat_template, "问：")) {
    return Checkpoint::ChatFormat{"chatglm2", {}};
  }
  if (Contains(chat_template, "[gMASK]sop") || Contains(chat_template, "[gMASK] sop")) {
    return Checkpoint::ChatFormat{"chatglm3", {}};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(source),
                   ": the chat template is none of those known here; choose a prompt "
                   "format by name: ",
                   absl::StrJoin(chat::PromptFormatNames(), ", ")));
}

}  // namespace baton::checkpoint
