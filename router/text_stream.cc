// SPDX-License-Identifier: Apache-2.0
#include "router/text_stream.h"

#include <algorithm>
#include <utility>

namespace baton::router {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
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
      held_.resize(held_.size() - longest->stop.size());
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

TextStream::TextStream(const tokenizer::Tokenizer* tokenizer, std::vector<std::string> stops)
    : matcher_(std::move(stops)) {
  if (tokenizer != nullptr) decoder_.emplace(tokenizer);
}

std::string TextStream::Push(TokenId id) {
  return decoder_.has_value() ? matcher_.Push(decoder_->Push(id)) : "";
}

std::string TextStream::Flush() {
  if (!decoder_.has_value()) return "";
  std::string text = matcher_.Push(decoder_->Flush());
  return text + matcher_.Flush();
}

}  // namespace baton::router
