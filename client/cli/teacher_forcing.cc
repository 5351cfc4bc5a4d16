// SPDX-License-Identifier: Apache-2.0
#include "client/cli/teacher_forcing.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/cli/sequence_runner.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

using Json = nlohmann::json;

absl::Status AppendIds(const Json& item, const char* key, GoldenCase* golden) {
  const auto found = item.find(key);
  if (found == item.end() || !found->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is not a list"));
  }
  for (const Json& id : *found) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(key, " holds what is no token id"));
    }
    golden->ids.push_back(id.get<TokenId>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextScore> ScoreTokens(model::Model* model, std::span<const TokenId> tokens,
                                      const std::function<void(std::span<const float>)>& row) {
  if (tokens.empty()) return absl::InvalidArgumentError("there is no token to score");
  BATON_ASSIGN_OR_RETURN(SequenceRunner runner,
                         SequenceRunner::Create(model, 1, static_cast<uint32_t>(tokens.size())));
  // Padding ids are never chosen and have no probability.
  const uint32_t usable = model->info().usable_vocabulary;
  const auto padding = std::find_if(tokens.begin(), tokens.end(),
                                    [usable](TokenId token) { return token >= usable; });
  if (padding != tokens.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("token id ", *padding, " cannot be scored; ids go up to ", usable - 1));
  }
  TextScore score;
  BATON_RETURN_IF_ERROR(
      runner.ForEachRow(tokens, [&](uint32_t position, std::span<const float> logits) {
        if (row) row(logits);
        if (position + 1 == tokens.size()) return;
        score.logprobs.push_back(LogSoftmax(logits.first(usable))[tokens[position + 1]]);
      }));
  score.total = std::accumulate(score.logprobs.begin(), score.logprobs.end(), 0.0);
  if (!score.logprobs.empty()) {
    score.perplexity = std::exp(-score.total / static_cast<double>(score.logprobs.size()));
  }
  return score;
}

absl::StatusOr<std::vector<GoldenCase>> ParseGolden(std::string_view text, uint32_t max_ids) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return absl::InvalidArgumentError("not a JSON list of cases");
  std::vector<GoldenCase> cases;
  for (size_t i = 0; i < json.size(); ++i) {
    GoldenCase golden;
    const Json& item = json[i];
    absl::Status status = absl::OkStatus();
    if (!item.is_object()) status = absl::InvalidArgumentError("is not an object");
    if (status.ok()) status = AppendIds(item, "prompt_ids", &golden);
    if (status.ok()) status = AppendIds(item, "greedy_ids", &golden);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("case ", i, ": ", std::string(status.message())));
    }
    if (const auto name = item.find("name"); name != item.end() && name->is_string()) {
      golden.name = name->get<std::string>();
    }
    if (golden.ids.size() <= max_ids && !golden.ids.empty()) cases.push_back(std::move(golden));
  }
  return cases;
}

absl::StatusOr<DivergenceReport> CompareModels(model::Model* against, model::Model* tested,
                                               const std::vector<GoldenCase>& cases) {
  Divergence first, later;
  size_t longest = 0;
  for (const GoldenCase& golden : cases) longest = std::max(longest, golden.ids.size());
  BATON_ASSIGN_OR_RETURN(SequenceRunner tested_runner,
                         SequenceRunner::Create(tested, 1, static_cast<uint32_t>(longest)));
  BATON_ASSIGN_OR_RETURN(SequenceRunner against_runner,
                         SequenceRunner::Create(against, 1, static_cast<uint32_t>(longest)));
  if (tested_runner.vocabulary() != against_runner.vocabulary()) {
    return absl::InvalidArgumentError("the two models have different vocabularies");
  }
  std::vector<float> rows;  // of the tested model, one case
  for (const GoldenCase& golden : cases) {
    rows.clear();
    BATON_RETURN_IF_ERROR(
        tested_runner.ForEachRow(golden.ids, [&](uint32_t, std::span<const float> logits) {
          rows.insert(rows.end(), logits.begin(), logits.end());
        }));
    BATON_RETURN_IF_ERROR(against_runner.ForEachRow(
        golden.ids, [&](uint32_t position, std::span<const float> logits) {
          const auto row = std::span(rows).subspan(position * logits.size(), logits.size());
          (position == 0 ? first : later).Add(logits, row);
        }));
  }
  return DivergenceReport{later.Summarize(), first.Summarize()};
}

}  // namespace baton::cli
