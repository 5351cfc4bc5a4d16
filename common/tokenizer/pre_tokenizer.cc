// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tokenizer/character.h"

namespace baton::tokenizer {
namespace {

// White space as Unicode's White_Space has it; PCRE2's own \s also takes U+180E.
#define BATON_SPACE                                         \
  "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-" \
  "\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define BATON_SPACES_AT_WORD_END "[" BATON_SPACE "]+(?![^" BATON_SPACE "])"

// Radford et al., 2019, "Language Models are Unsupervised Multitask Learners".
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" BATON_SPACE
                              "\\p{L}\\p{N}]+|" BATON_SPACES_AT_WORD_END "|[" BATON_SPACE "]+";

// What Llama 3 and Qwen2 share; they differ in how many digits make a word.
#define BATON_MODERN(digits)                                                                       \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" BATON_SPACE         \
  "\\p{L}\\p{N}]+[\\r\\n]*|[" BATON_SPACE "]*[\\r\\n]+|" BATON_SPACES_AT_WORD_END "|[" BATON_SPACE \
  "]+"
constexpr const char* kLlama3 = BATON_MODERN("\\p{N}{1,3}");
constexpr const char* kQwen2 = BATON_MODERN("\\p{N}");

// Every digit alone, and all between digits in one piece.
constexpr const char* kDigits = "\\p{N}|\\P{N}+";

struct Definition {
  std::string_view name;
  std::array<const char*, 2> stages;
  bool ignores_merges;
};

constexpr Definition kDefinitions[] = {
    {"gpt-2", {kGpt2, nullptr}, false},
    {"smollm", {kDigits, kGpt2}, false},
    {"llama-bpe", {kLlama3, nullptr}, true},
    {"qwen2", {kQwen2, nullptr}, false},
};

}  // namespace

struct PreTokenizer::Stage {
  explicit Stage(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_AUTO_CAPTURE, &error,
                         &offset, nullptr);
    // Without JIT (a hardened kernel may forbid it) matching is slower only.
    if (code != nullptr) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  ~Stage() { pcre2_code_free(code); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  void Split(std::string_view text, std::vector<std::string_view>& words) const {
    // NO_UTF_CHECK: the caller vouches for the text, and a check per match
    // would make long texts quadratic.
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (size_t at = 0; at < text.size();) {
      size_t length = 0;
      const int result =
          pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr);
      if (result > 0) length = pcre2_get_ovector_pointer(match)[1] - at;
      // The expressions match everywhere; should the matcher run into one of
      // its limits, the text is still kept, a character at a time.
      if (length == 0) length = CharacterLength(text.substr(at));
      words.push_back(text.substr(at, length));
      at += length;
    }
    pcre2_match_data_free(match);
  }

  pcre2_code* code = nullptr;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Make(std::string_view name) {
  for (const Definition& definition : kDefinitions) {
    if (definition.name != name) continue;
    std::unique_ptr<PreTokenizer> made(new PreTokenizer());
    made->ignores_merges_ = definition.ignores_merges;
    for (const char* pattern : definition.stages) {
      if (pattern == nullptr) continue;
      made->stages_.push_back(std::make_unique<Stage>(pattern));
      if (made->stages_.back()->code == nullptr) {
        return absl::InternalError("PCRE2 refuses a pre-tokenizer's expression");
      }
    }
    return made;
  }
  return absl::UnimplementedError(absl::StrCat("pre-tokenizer \"", std::string(name),
                                               "\" is not supported; supported are ",
                                               absl::StrJoin(PreTokenizerNames(), ", ")));
}

std::vector<std::string_view> PreTokenizer::Split(std::string_view text) const {
  std::vector<std::string_view> words = {text};
  for (const auto& stage : stages_) {
    std::vector<std::string_view> cut;
    for (std::string_view word : words) stage->Split(word, cut);
    words = std::move(cut);
  }
  return words;
}

std::vector<std::string> PreTokenizerNames() {
  std::vector<std::string> names;
  for (const Definition& definition : kDefinitions) names.emplace_back(definition.name);
  return names;
}

}  // namespace baton::tokenizer
