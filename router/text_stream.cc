// SPDX-License-Identifier: Apache-2.0
#include "router/text_stream.h"

#include <algorithm>
#include <utility>

namespace baton::router {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include) : include_(include) {
  for (std::string& stop : stops) {
    std::vector<size_t> fallback(stop.size(), 0);
    for (size_t i = 1, border = 0; i < stop.size(); ++i) {
      while (border > 0 && stop[i] != stop[border]) border = fallback[border - 1];
      if (stop[i] == stop[border]) ++border;
      fallback[i] = border;
    }
    automata_.push_back({std::move(stop), std::move(fallback)});
  }
}

bool StopMatcher::Automaton::Step(char byte) {
  while (length > 0 && stop[length] != byte) length = fallback[length - 1];
  if (stop[length] == byte) ++length;
  return length == stop.size();
}

std::string StopMatcher::Push(std::string_view text) {
  if (matched_.has_value()) return "";
  for (const char byte : text) {
    held_.push_back(byte);
    const Automaton* longest = nullptr;
    for (Automaton& automaton : automata_) {
      if (automaton.Step(byte) &&
          (longest == nullptr || automaton.stop.size() > longest->stop.size())) {
        longest = &automaton;
      }
    }
    if (longest != nullptr) {
      matched_ = longest->stop;
      if (!include_) held_.resize(held_.size() - longest->stop.size());
      return std::exchange(held_, {});
    }
  }
  size_t keep = 0;
  for (const Automaton& automaton : automata_) keep = std::max(keep, automaton.length);
  std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

SequenceMatcher::SequenceMatcher(std::vector<std::vector<TokenId>> sequences)
    : sequences_(std::move(sequences)) {}

// Sequences are few and short: a comparison per length is cheaper than tables.
size_t SequenceMatcher::LongestPrefix() const {
  size_t longest = 0;
  for (const std::vector<TokenId>& sequence : sequences_) {
    for (size_t length = std::min(sequence.size() - 1, held_.size()); length > longest; --length) {
      if (std::equal(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(length),
                     held_.end() - static_cast<std::ptrdiff_t>(length))) {
        longest = length;
      }
    }
  }
  return longest;
}

std::vector<TokenId> SequenceMatcher::Push(TokenId id) {
  if (matched_.has_value()) return {};
  held_.push_back(id);
  size_t keep = 0;
  for (const std::vector<TokenId>& sequence : sequences_) {
    if (sequence.size() > held_.size() || sequence.size() <= keep) continue;
    if (std::equal(sequence.rbegin(), sequence.rend(), held_.rbegin())) {
      matched_ = sequence;
      keep = sequence.size();
    }
  }
  if (!matched_.has_value()) keep = LongestPrefix();
  const auto border = held_.end() - static_cast<std::ptrdiff_t>(keep);
  std::vector<TokenId> ready(held_.begin(), border);
  held_.erase(held_.begin(), border);
  if (matched_.has_value()) held_.clear();
  return ready;
}

std::vector<TokenId> SequenceMatcher::Flush() { return std::exchange(held_, {}); }

TextStream::TextStream(const tokenizer::Tokenizer* tokenizer, TextRules rules)
    : include_stop_(rules.include_stop),
      min_tokens_(rules.min_tokens),
      silent_(std::move(rules.silent)),
      sequences_(std::move(rules.stop_sequences)),
      texts_(std::move(rules.stops), rules.include_stop) {
  if (tokenizer != nullptr) decoder_.emplace(tokenizer);
  if (rules.polish) polish_.emplace();
}

std::string TextStream::Decode(TokenId id) {
  const bool silent = std::find(silent_.begin(), silent_.end(), id) != silent_.end();
  return decoder_.has_value() && !silent ? decoder_->Push(id) : "";
}

std::string TextStream::Search(const std::vector<TokenId>& ids) {
  std::string text;
  for (TokenId id : ids) text += texts_.Push(Decode(id));
  return text;
}

std::string TextStream::Push(TokenId id) {
  std::string text = PushUnpolished(id);
  return polish_.has_value() ? polish_->Push(text) : text;
}

std::string TextStream::Flush() {
  std::string text = FlushUnpolished();
  return polish_.has_value() ? polish_->Push(text) + polish_->Flush() : text;
}

std::string TextStream::PushUnpolished(TokenId id) {
  if (matched()) return "";
  if (pushed_++ < min_tokens_) return Decode(id);
  std::string text = Search(sequences_.Push(id));
  if (!sequences_.matched().has_value() || texts_.matched().has_value()) return text;
  if (include_stop_) {
    text += texts_.Flush();
    for (TokenId part : *sequences_.matched()) text += Decode(part);
  }
  return text;
}

std::string TextStream::FlushUnpolished() {
  if (!decoder_.has_value()) return "";
  std::string text = Search(sequences_.Flush());
  if (texts_.matched().has_value()) return text;
  text += texts_.Push(decoder_->Flush());
  return text + texts_.Flush();
}

}  // namespace baton::router
