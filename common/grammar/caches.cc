// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/caches.h"

#include <utility>

#include "common/base/status_macros.h"

namespace baton::grammar {

ProgramCache::Result ProgramCache::Get(const Source& source) {
  if (auto known = cache_.Find(source)) return *std::move(known);
  return cache_.Put(source, Compile(source));
}

MatcherCache::MatcherCache(std::function<Vocabulary()> load, size_t most)
    : vocabulary_(std::async(std::launch::async, std::move(load)).share()), cache_(most) {}

absl::StatusOr<std::shared_ptr<Matcher>> MatcherCache::Get(const Source& source) {
  if (auto known = cache_.Find(source)) return *std::move(known);
  const Vocabulary& vocabulary = vocabulary_.get();
  if (!vocabulary.ok()) return vocabulary.status();
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program, Compile(source));
  return cache_.Put(source, std::make_shared<Matcher>(std::move(program), *vocabulary));
}

}  // namespace baton::grammar
