// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace baton::chat {

// Without ASCII white space and U+3000 at both ends.
std::string_view StripSpace(std::string_view text);

// What ChatGLM's process_response does: strips, and fills in the year.
std::string PolishChatGlm(std::string_view answer);

}  // namespace baton::chat
