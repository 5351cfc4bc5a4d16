// SPDX-License-Identifier: Apache-2.0
// What constraints cost per token: build/release/tests/mask_bench [MODEL]. Walks
// at random through the masks of a real vocabulary; the first answer of a
// constraint apart from the later ones.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/grammar/matcher.h"
#include "common/grammar/source.h"

namespace baton::grammar {
namespace {

using Clock = std::chrono::steady_clock;
double Microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

struct Case {
  const char* name;
  Source source;
};

std::vector<Case> Cases() {
  const auto schema = [](const char* text) { return Source{SourceKind::kSchema, text, {}}; };
  const auto regex = [](const char* text) { return Source{SourceKind::kRegex, text, {}}; };
  return {
      {"any object", {SourceKind::kAnyObject, "", {}}},
      {"person",
       schema(
           R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130},"email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string"},"maxItems":5}},"required":["name","age"]})")},
      {"bounded strings",
       schema(R"({"type":"array","items":{"type":"string","maxLength":80},"maxItems":20})")},
      {"tree",
       schema(
           R"({"type":"object","properties":{"value":{"type":"number"},"children":{"type":"array","items":{"$ref":"#"}}},"required":["value","children"]})")},
      {"words", regex("[A-Z][a-z]+( [a-z]+){2,30}\\.")},
      {"any line", regex(".{1,400}")},
      {"date", regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")},
      {"choices", {SourceKind::kChoices, "", {"positive", "negative", "neutral"}}},
  };
}

struct Cost {
  double total = 0, worst = 0;
  uint64_t tokens = 0;
};

// One answer of at most `most` tokens.
void Answer(Matcher& matcher, std::mt19937& random, uint32_t most, Cost& cost) {
  std::vector<TokenId> outputs, allowed;
  Cursor cursor;
  TokenMask mask;
  Matcher::Standing standing;
  while (outputs.size() < most) {
    const auto start = Clock::now();
    if (!matcher
             .FillMask(
                 {.outputs = outputs, .tokens_left = most - static_cast<uint32_t>(outputs.size())},
                 &cursor, &mask)
             .ok())
      return;
    double spent = Microseconds(Clock::now() - start);
    allowed.clear();
    for (size_t word = 0; word < mask.size(); ++word) {
      for (uint64_t bits = mask[word]; bits != 0; bits &= bits - 1) {
        allowed.push_back(
            static_cast<TokenId>(word * 64 + static_cast<size_t>(__builtin_ctzll(bits))));
      }
    }
    if (allowed.empty()) return;
    outputs.push_back(allowed[random() % allowed.size()]);
    const auto follow = Clock::now();
    if (!matcher.Follow(outputs, &cursor, &standing).ok()) return;
    spent += Microseconds(Clock::now() - follow);
    cost.total += spent;
    cost.worst = std::max(cost.worst, spent);
    ++cost.tokens;
    if (standing.ended) return;
  }
}

int Run(const std::string& path) {
  const auto checkpoint = checkpoint::OpenCheckpoint(path);
  if (!checkpoint.ok())
    return std::fprintf(stderr, "%s\n", checkpoint.status().ToString().c_str()), 1;
  const auto tokenizer = (*checkpoint)->LoadTokenizer();
  if (!tokenizer.ok() || *tokenizer == nullptr) return std::fprintf(stderr, "no tokenizer\n"), 1;
  auto start = Clock::now();
  const auto trie = TokenTrie::Of(**tokenizer);
  std::printf("%u tokens, %zu nodes, built in %.1f ms\n", trie->vocabulary(), trie->nodes().size(),
              Microseconds(Clock::now() - start) / 1000);
  std::printf("%-16s %9s %22s %30s\n", "", "compile", "first answer", "99 more answers");
  std::printf("%-16s %9s %10s %11s %10s %9s %9s\n", "", "ms", "us/token", "worst us", "us/token",
              "worst us", "masks");
  for (const Case& c : Cases()) {
    start = Clock::now();
    const auto program = Compile(c.source);
    const double compile = Microseconds(Clock::now() - start) / 1000;
    if (!program.ok()) return std::fprintf(stderr, "%s\n", program.status().ToString().c_str()), 1;
    Matcher matcher(*program, trie);
    std::mt19937 random(1);
    Cost first, more;
    Answer(matcher, random, 200, first);
    const uint64_t before = matcher.counters().masks_made;
    for (int i = 0; i < 99; ++i) Answer(matcher, random, 200, more);
    std::printf("%-16s %9.2f %10.1f %11.0f %10.1f %9.0f %4llu+%llu\n", c.name, compile,
                first.total / static_cast<double>(first.tokens), first.worst,
                more.total / static_cast<double>(more.tokens), more.worst,
                static_cast<unsigned long long>(before),
                static_cast<unsigned long long>(matcher.counters().masks_made - before));
  }
  return 0;
}

}  // namespace
}  // namespace baton::grammar

int main(int argc, char** argv) { return baton::grammar::Run(argc > 1 ? argv[1] : "embedded"); }
