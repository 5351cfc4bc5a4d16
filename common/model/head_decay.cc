// SPDX-License-Identifier: Apache-2.0
#include "common/model/head_decay.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace baton::model {
namespace {

constexpr uint32_t kAll = UINT32_MAX;

// "3", "1-4" (both of them are in it), "*".
bool ParseRange(const std::string& text, uint32_t* begin, uint32_t* end) {
  if (text == "*") {
    *begin = 0;
    *end = kAll;
    return true;
  }
  const std::vector<std::string> parts = absl::StrSplit(text, '-');
  uint32_t last = 0;
  if (parts.size() > 2 || !absl::SimpleAtoi(parts.front(), begin) ||
      !absl::SimpleAtoi(parts.back(), &last) || last < *begin || last == kAll) {
    return false;
  }
  *end = last + 1;
  return true;
}

absl::Status OutOfRange(const char* what, uint32_t end, uint32_t count) {
  return absl::InvalidArgumentError(
      absl::StrCat("head decay: ", what, " ", end - 1, " is asked for; the model has ", count));
}

}  // namespace

absl::StatusOr<std::vector<HeadDecay>> ParseHeadDecays(const std::vector<std::string>& texts) {
  std::vector<HeadDecay> rules;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':'), equals = text.find('=');
    HeadDecay& rule = rules.emplace_back();
    if (colon == std::string::npos || equals == std::string::npos || equals < colon ||
        !ParseRange(text.substr(0, colon), &rule.layer_begin, &rule.layer_end) ||
        !ParseRange(text.substr(colon + 1, equals - colon - 1), &rule.head_begin, &rule.head_end) ||
        !absl::SimpleAtof(text.substr(equals + 1), &rule.factor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\" is not LAYERS:HEADS=FACTOR, such as 2:0-3=0.9 or *:*=0.5"));
    }
    if (!(rule.factor >= 0 && rule.factor < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\": the factor must be from 0 to below 1"));
    }
  }
  return rules;
}

absl::StatusOr<std::vector<float>> DecayTable(std::span<const HeadDecay> rules, uint32_t layers,
                                              uint32_t heads) {
  std::vector<float> table;
  if (!rules.empty()) table.assign(size_t{layers} * heads, 1.0f);
  for (const HeadDecay& rule : rules) {
    const uint32_t layer_end = rule.layer_end == kAll ? layers : rule.layer_end;
    const uint32_t head_end = rule.head_end == kAll ? heads : rule.head_end;
    if (layer_end > layers) return OutOfRange("layer", layer_end, layers);
    if (head_end > heads) return OutOfRange("head", head_end, heads);
    for (uint32_t layer = rule.layer_begin; layer < layer_end; ++layer) {
      const auto row = table.begin() + static_cast<std::ptrdiff_t>(size_t{layer} * heads);
      std::fill(row + rule.head_begin, row + head_end, rule.factor);
    }
  }
  return table;
}

std::string DecayName(std::span<const float> table) {
  if (table.empty()) return "";
  return absl::StrCat("decay-", absl::Hex(Crc32c(std::as_bytes(table)), absl::kZeroPad8));
}

}  // namespace baton::model
