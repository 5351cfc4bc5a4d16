// SPDX-License-Identifier: Apache-2.0
// The merge loop of byte-pair encoding (Sennrich et al., 2016), for both kinds
// of vocabulary: ranked pairs and scored pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/types.h"

namespace baton::tokenizer {

// A run of bytes of the text that is one token so far.
struct Symbol {
  uint32_t begin = 0;
  uint32_t length = 0;  // 0: merged into the symbol on its left
  TokenId id = 0;
};

struct Merge {
  double order = 0;  // smaller merges first; equal ones from left to right
  TokenId id = 0;    // of the merged symbol
};

// Reuses its memory from word to word. Thread safety: none.
class Merger {
 public:
  // Merges neighbours as long as `find(left, right)` returns a Merge; what
  // remains is in `symbols`, in order. O(n log n): a heap holds the candidate
  // pairs, and those that a merge made stale are dropped when they come up.
  template <typename FindMerge>  // std::optional<Merge>(const Symbol&, const Symbol&)
  void Run(std::vector<Symbol>& symbols, const FindMerge& find) {
    Link(symbols.size());
    for (uint32_t i = 0; i + 1 < symbols.size(); ++i) Propose(symbols, i, i + 1, find);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), ComesLater);
      const Candidate best = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols[best.left];
      Symbol& right = symbols[best.right];
      // Symbols only grow or vanish, so an equal sum means that both are as
      // they were when the pair was proposed.
      if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) {
        continue;
      }
      left.length = best.length;
      left.id = best.id;
      right.length = 0;
      Unlink(best.left, best.right);
      if (const uint32_t before = links_[best.left].previous; before != kNone) {
        Propose(symbols, before, best.left, find);
      }
      if (const uint32_t after = links_[best.left].next; after != kNone) {
        Propose(symbols, best.left, after, find);
      }
    }
    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct LinkPair {
    uint32_t previous, next;
  };
  struct Candidate {
    double order;
    uint32_t left, right, length;
    TokenId id;
  };

  static bool ComesLater(const Candidate& a, const Candidate& b) {
    return a.order != b.order ? a.order > b.order : a.left > b.left;
  }

  void Link(size_t count) {
    heap_.clear();
    links_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      links_[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
    }
  }

  void Unlink(uint32_t left, uint32_t right) {
    const uint32_t after = links_[right].next;
    links_[left].next = after;
    if (after != kNone) links_[after].previous = left;
  }

  template <typename FindMerge>
  void Propose(const std::vector<Symbol>& symbols, uint32_t left, uint32_t right,
               const FindMerge& find) {
    const std::optional<Merge> merge = find(symbols[left], symbols[right]);
    if (!merge.has_value()) return;
    heap_.push_back(
        {merge->order, left, right, symbols[left].length + symbols[right].length, merge->id});
    std::push_heap(heap_.begin(), heap_.end(), ComesLater);
  }

  std::vector<LinkPair> links_;
  std::vector<Candidate> heap_;
};

}  // namespace baton::tokenizer
