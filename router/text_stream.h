// SPDX-License-Identifier: Apache-2.0
// Tokens of an answer to the text that its client may see.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::router {

// Finds stop texts in text that arrives in pieces. The match that is complete
// first wins; among those complete at the same byte, the longest. So the
// result does not depend on how the text was cut. What is held back is the
// longest end of the text that is a proper prefix of some stop, no more.
//
// One Knuth-Morris-Pratt automaton per stop: O(bytes x stops).
// Thread safety: none.
class StopMatcher final {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  // Text that may be sent now. After a match: what stands before it, and every
  // later call returns nothing.
  std::string Push(std::string_view text);
  // The end of the text: what was held can no longer match.
  std::string Flush();

  // The stop that matched.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  struct Automaton {
    std::string stop;
    std::vector<size_t> fallback;  // [i]: longest border of the first i + 1 bytes
    size_t length = 0;             // bytes matched so far

    // True when `byte` completes the stop.
    bool Step(char byte);
  };

  std::vector<Automaton> automata_;
  std::string held_;
  std::optional<std::string> matched_;
};

// Decoder and stop matcher of one answer. The joined pieces equal the decoded
// text of all tokens, cut before the stop text; every piece is valid UTF-8.
// Thread safety: none.
class TextStream final {
 public:
  // Without a tokenizer every piece is empty. `tokenizer` must outlive this.
  TextStream(const tokenizer::Tokenizer* tokenizer, std::vector<std::string> stops);

  std::string Push(TokenId id);
  // Incomplete characters become U+FFFD, held text is released.
  std::string Flush();
  const std::optional<std::string>& matched_stop() const { return matcher_.matched(); }

 private:
  std::optional<tokenizer::StreamDecoder> decoder_;
  StopMatcher matcher_;
};

}  // namespace baton::router
