// SPDX-License-Identifier: Apache-2.0
// One maker per format; prompt_format.cc lists them.
#pragma once

#include <memory>

#include "common/chat/prompt_format.h"

namespace baton::chat {

std::unique_ptr<PromptFormat> MakeChatGlm2(const FormatOptions& options);
std::unique_ptr<PromptFormat> MakeChatGlm3(const FormatOptions& options);
std::unique_ptr<PromptFormat> MakeChatMl(const FormatOptions& options);
std::unique_ptr<PromptFormat> MakeLlama2(const FormatOptions& options);
std::unique_ptr<PromptFormat> MakeRaw(const FormatOptions& options);

}  // namespace baton::chat
