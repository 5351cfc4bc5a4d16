// SPDX-License-Identifier: Apache-2.0
// What was compiled lately.
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "absl/status/statusor.h"
#include "common/grammar/lru_cache.h"
#include "common/grammar/matcher.h"
#include "common/grammar/source.h"

namespace baton::grammar {

// Programs, and why others were refused: who sends a bomb twice pays once.
// Thread-safe.
class ProgramCache final {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const Program>>;

  explicit ProgramCache(size_t most = 64) : cache_(most) {}
  // As Compile.
  Result Get(const Source& source);

 private:
  LruCache<Source, Result> cache_;
};

// Matchers of one vocabulary. Sequences hold on to theirs; the cache bounds what
// is kept for those to come, each of them bounded by Matcher::Limits.
// Thread-safe.
class MatcherCache final {
 public:
  using Vocabulary = absl::StatusOr<std::shared_ptr<const TokenTrie>>;

  // `load` is run at once in a thread of its own; Get waits for it.
  explicit MatcherCache(std::function<Vocabulary()> load, size_t most = 32);

  // Errors: of Compile, and of `load`.
  absl::StatusOr<std::shared_ptr<Matcher>> Get(const Source& source);

 private:
  std::shared_future<Vocabulary> vocabulary_;
  LruCache<Source, std::shared_ptr<Matcher>> cache_;
};

}  // namespace baton::grammar
