// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"

namespace baton::tokenizer {

// Thread-safe: immutable after loading.
//
// Encode never yields a control token: what a user types stays text. Control
// tokens come from the prompt format alone, by TokenByName().
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "sentencepiece", "spm" (read from a GGUF) or "bpe".
  virtual std::string_view kind() const = 0;
  // Number of ids the tokenizer knows, control tokens included.
  virtual uint32_t size() const = 0;

  // REQUIRES: `text` is valid UTF-8. `first` is true where the text stands at
  // the start of the sequence or right behind a control token at which the
  // model's own tokenizer puts its dummy prefix again; it decides about that
  // prefix alone (byte-level BPE has none).
  virtual std::vector<TokenId> Encode(std::string_view text, bool first = true) const = 0;

  // The bytes a token stands for, which may be a part of a character. Empty
  // for control tokens and ids outside the vocabulary. sentencepiece's "▁" is
  // a space here; the dummy prefix is removed by the StreamDecoder.
  virtual std::string TokenBytes(TokenId id) const = 0;

  // True for a token that stands for one raw byte (<0x0A>), which a decoder
  // never takes for the dummy prefix.
  virtual bool IsByte(TokenId /*id*/) const { return false; }

  // True when a decoder drops one leading space of the whole text.
  virtual bool drops_leading_space() const = 0;

  // The id of a control token by its exact name, such as "<|im_end|>", "sop".
  virtual std::optional<TokenId> TokenByName(std::string_view name) const = 0;
  virtual bool IsControl(TokenId id) const = 0;

  // Put in front of raw text by the model's convention ([gMASK] sop; BOS).
  virtual const std::vector<TokenId>& prefix() const = 0;
  // End-of-answer tokens.
  virtual const std::vector<TokenId>& end_tokens() const = 0;
};

// Decodes a whole list: invalid or incomplete UTF-8 becomes U+FFFD, one per
// byte as sentencepiece does.
std::string Decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids);

// Turns tokens into text piece by piece. The joined pieces equal Decode of all
// ids, byte for byte, and every piece is valid UTF-8: bytes of an incomplete
// character are held back until it is complete or Flush is called.
//
// Thread safety: none; one object per stream.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer* tokenizer);

  std::string Push(TokenId id);
  // The held bytes, as U+FFFD each.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // an incomplete character
  bool at_start_ = true;
};

}  // namespace baton::tokenizer
