// SPDX-License-Identifier: Apache-2.0
// What a model's own reference does to its answers.
#pragma once

#include <string>
#include <string_view>

namespace baton::chat {

// Without white space, as Python's str.strip() sees it, at both ends.
std::string_view StripSpace(std::string_view text);

// ChatGLM's process_response, on an answer that arrives in pieces: strips it, and
// fills in the year where the model says [[训练时间]]. Joined, the pieces equal
// what the reference makes of the whole. Held back are white space, which may be
// the end, and what may become the placeholder.
// Thread safety: none.
class AnswerPolish final {
 public:
  // Takes whole characters.
  std::string Push(std::string_view text);
  // The end of the answer.
  std::string Flush();

 private:
  bool begun_ = false;  // something that is no white space has come
  std::string held_;
};

}  // namespace baton::chat
