// SPDX-License-Identifier: Apache-2.0
#include "tests/common/grammar/acceptance.h"

#include <stdexcept>

namespace baton::grammar {

Acceptor::Acceptor(const Source& source) {
  auto program = Compile(source);
  if (!program.ok()) throw std::runtime_error(std::string(program.status().message()));
  program_ = *std::move(program);
  automaton_ = std::make_unique<Automaton>(program_.get(), Automaton::Limits());
}

bool Acceptor::operator()(std::string_view text) {
  StateId state = automaton_->start();
  for (const char byte : text) state = automaton_->Next(state, static_cast<uint8_t>(byte));
  return automaton_->Accepts(state);
}

Source SchemaSource(std::string_view schema) {
  return {.kind = SourceKind::kSchema, .text = std::string(schema), .choices = {}};
}

Source RegexSource(std::string_view pattern) {
  return {.kind = SourceKind::kRegex, .text = std::string(pattern), .choices = {}};
}

Source ChoicesSource(std::vector<std::string> choices) {
  return {.kind = SourceKind::kChoices, .text = "", .choices = std::move(choices)};
}

std::string Refusal(const Source& source) {
  const auto program = Compile(source);
  return program.ok() ? "" : std::string(program.status().message());
}

}  // namespace baton::grammar
