// SPDX-License-Identifier: Apache-2.0
// What a grammar matches, text by text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/automaton.h"
#include "common/grammar/source.h"

namespace baton::grammar {

// A compiled source that tests texts. Throws where the source does not compile.
class Acceptor {
 public:
  explicit Acceptor(const Source& source);
  bool operator()(std::string_view text);

 private:
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Automaton> automaton_;
};

Source SchemaSource(std::string_view schema);
Source RegexSource(std::string_view pattern);
Source ChoicesSource(std::vector<std::string> choices);
inline Acceptor Schema(std::string_view schema) { return Acceptor(SchemaSource(schema)); }
inline Acceptor Pattern(std::string_view pattern) { return Acceptor(RegexSource(pattern)); }

// What Compile says against it; empty when nothing.
std::string Refusal(const Source& source);

}  // namespace baton::grammar
