// SPDX-License-Identifier: Apache-2.0
// Tokens of an answer to the text that its client may see.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"
#include "common/chat/polish.h"
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
  // `include`: text that is returned has the match at its end.
  StopMatcher(std::vector<std::string> stops, bool include);

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

  const bool include_;
  std::vector<Automaton> automata_;
  std::string held_;
  std::optional<std::string> matched_;
};

// Finds runs of tokens, by the rules of StopMatcher: the first complete one,
// the longest of those complete at the same token.
// Thread safety: none.
class SequenceMatcher final {
 public:
  explicit SequenceMatcher(std::vector<std::vector<TokenId>> sequences);

  // Tokens that are no part of a run that may still match, in order. After a
  // match: those before it.
  std::vector<TokenId> Push(TokenId id);
  // The end: what was held can no longer match.
  std::vector<TokenId> Flush();

  const std::optional<std::vector<TokenId>>& matched() const { return matched_; }

 private:
  // A run of `length` tokens, the last of `held_`, is a proper prefix of it.
  size_t LongestPrefix() const;

  const std::vector<std::vector<TokenId>> sequences_;
  std::vector<TokenId> held_;
  std::optional<std::vector<TokenId>> matched_;
};

// What becomes text, and where it ends.
struct TextRules {
  std::vector<std::string> stops = {};
  std::vector<std::vector<TokenId>> stop_sequences = {};
  bool include_stop = false;         // the text of what matched is sent too
  uint32_t min_tokens = 0;           // nothing is looked for in the first ones
  std::vector<TokenId> silent = {};  // tokens without text
  bool polish = false;               // through chat::AnswerPolish, after stops were found
};

// Decoder and stop matchers of one answer. The joined pieces equal the decoded
// text of all tokens, cut at the stop, and polished; every piece is valid UTF-8.
// Tokens that may belong to a stop sequence are held back, and stop texts are
// looked for in what is not.
// Thread safety: none.
class TextStream final {
 public:
  // Without a tokenizer every piece is empty. `tokenizer` must outlive this.
  TextStream(const tokenizer::Tokenizer* tokenizer, TextRules rules);

  std::string Push(TokenId id);
  // The answer ends, by a match or for another reason: incomplete characters
  // become U+FFFD, held text is released.
  std::string Flush();

  // A stop text or a stop sequence was found; what is pushed later has no text.
  bool matched() const { return matched_stop().has_value() || matched_sequence().has_value(); }
  const std::optional<std::string>& matched_stop() const { return texts_.matched(); }
  const std::optional<std::vector<TokenId>>& matched_sequence() const {
    return sequences_.matched();
  }

 private:
  std::string PushUnpolished(TokenId id);
  std::string FlushUnpolished();
  std::string Decode(TokenId id);
  std::string Search(const std::vector<TokenId>& ids);

  std::optional<tokenizer::StreamDecoder> decoder_;
  const bool include_stop_;
  const uint32_t min_tokens_;
  const std::vector<TokenId> silent_;
  SequenceMatcher sequences_;
  StopMatcher texts_;
  std::optional<chat::AnswerPolish> polish_;
  uint32_t pushed_ = 0;
};

}  // namespace baton::router
