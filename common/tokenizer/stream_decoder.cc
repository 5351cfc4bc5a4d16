// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "common/base/utf8.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::tokenizer {

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

std::string StreamDecoder::Push(TokenId id) {
  if (tokenizer_->IsControl(id)) return {};
  std::string bytes = tokenizer_->TokenBytes(id);
  // Only the very first piece loses its dummy prefix, and a byte token has none.
  if (std::exchange(at_start_, false) && tokenizer_->drops_leading_space() &&
      !tokenizer_->IsByte(id) && bytes.starts_with(' ')) {
    bytes.erase(0, 1);
  }
  pending_ += bytes;
  const size_t complete = CompleteUtf8Prefix(pending_);
  std::string out = ReplaceInvalidUtf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return out;
}

std::string StreamDecoder::Flush() { return ReplaceInvalidUtf8(std::exchange(pending_, {})); }

std::string Decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(&tokenizer);
  std::string out;
  for (TokenId id : ids) out += decoder.Push(id);
  return out + decoder.Flush();
}

}  // namespace baton::tokenizer
