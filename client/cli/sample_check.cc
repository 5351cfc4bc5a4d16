// SPDX-License-Identifier: Apache-2.0
// `baton sample-check`: the distribution of a prompt's next token, before and
// after each step of the sampling chain.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/constraint_flags.h"
#include "client/cli/constraint_mask.h"
#include "client/cli/id_list.h"
#include "client/cli/local_model.h"
#include "client/cli/teacher_forcing.h"
#include "client/cli/text_source.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/sampling/sampler.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;
using sampling::StepDistribution;

class SampleCheckCommand final : public Command {
 public:
  explicit SampleCheckCommand(config::CommandLine* line) : Command(line) {
    model_.Register(*line, "GGUF file, safetensors file, their folder, or \"embedded\"");
    compute_.Register(*line);
    line->Add("Input", "prompt", &prompt_, "Text, behind the model's prefix tokens; - reads input");
    line->Add("Input", "prompt-ids", &ids_, "Token ids, as they are: 1,2,3");
    line->Add("Input", "outputs", &outputs_, "How many of the last tokens count as output");
    line->Add("Sampling", "temperature", &temperature_, "0 is greedy");
    line->Add("Sampling", "top-k", &params_.top_k, "Keeps the k most probable; 0 keeps all");
    line->Add("Sampling", "top-p", &top_p_, "Keeps the smallest set that reaches it");
    line->Add("Sampling", "min-p", &min_p_, "Keeps that part of the highest probability");
    line->Add("Sampling", "typical-p", &typical_p_, "Keeps the most typical that reach it");
    line->Add("Sampling", "repetition-penalty", &repetition_penalty_, "On prompt and output");
    line->Add("Sampling", "presence-penalty", &presence_penalty_, "On the output");
    line->Add("Sampling", "frequency-penalty", &frequency_penalty_, "On the output");
    line->Add("Sampling", "logit-bias", &logit_bias_, "Added to logits of tokens: 15=-2.5,7=10");
    line->Add("Sampling", "bad-token-ids", &bad_token_ids_, "Run of tokens that is not produced");
    line->Add("Sampling", "min-tokens", &params_.min_tokens, "Bans end tokens before so many");
    line->Add("Sampling", "seed", &params_.seed, "Of the token that is drawn at the end");
    constraint_.Register(*line);
    line->Add("Output", "top", &top_, "Tokens shown of each step");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
  }

  int Run() override {
    if (prompt_.has_value() == ids_.has_value()) {
      return UsageError("give one of --prompt and --prompt-ids");
    }
    const absl::Status status = Check();
    return status.ok() ? kExitOk : Fail(status);
  }

 private:
  absl::Status SetParams() {
    params_.temperature = static_cast<float>(temperature_);
    params_.top_p = static_cast<float>(top_p_);
    params_.min_p = static_cast<float>(min_p_);
    params_.typical_p = static_cast<float>(typical_p_);
    params_.repetition_penalty = static_cast<float>(repetition_penalty_);
    params_.presence_penalty = static_cast<float>(presence_penalty_);
    params_.frequency_penalty = static_cast<float>(frequency_penalty_);
    BATON_ASSIGN_OR_RETURN(params_.logit_bias, ParseBiases("logit-bias", logit_bias_));
    BATON_ASSIGN_OR_RETURN(params_.bad_sequences, ParseIdLists("bad-token-ids", bad_token_ids_));
    return sampling::Validate(params_);
  }

  absl::StatusOr<std::vector<TokenId>> Tokens(const checkpoint::Checkpoint& checkpoint) const {
    if (ids_) return ParseIdList("prompt-ids", *ids_);
    std::string text = *prompt_;
    if (text == "-") {
      BATON_ASSIGN_OR_RETURN(text, ReadText("prompt", "-"));
    }
    return EncodeText(checkpoint, text);
  }

  // Empty without a constraint.
  absl::StatusOr<grammar::TokenMask> Allowed(const tokenizer::Tokenizer* tokenizer,
                                             const sampling::Position& position) const {
    BATON_ASSIGN_OR_RETURN(const auto constraint, constraint_.Read());
    if (!constraint) return grammar::TokenMask();
    if (tokenizer == nullptr) {
      return absl::FailedPreconditionError("the model has no tokenizer; constraints need one");
    }
    return AllowedNext(*constraint, *tokenizer, position.tokens.last(position.output_index),
                       position.end_tokens);
  }

  absl::Status Check() {
    BATON_RETURN_IF_ERROR(SetParams());
    BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
    BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, Tokens(*checkpoint));
    BATON_ASSIGN_OR_RETURN(const auto tokenizer, checkpoint->LoadTokenizer());
    BATON_ASSIGN_OR_RETURN(const model::LoadOptions options, compute_.Options());
    BATON_ASSIGN_OR_RETURN(const auto model, model::LoadModel(*checkpoint, options));
    const model::ModelInfo& info = model->info();
    sampling::Position position{
        .tokens = tokens,
        .output_index = std::min(outputs_, static_cast<uint32_t>(tokens.size())),
        .end_tokens = info.end_tokens};
    BATON_ASSIGN_OR_RETURN(const grammar::TokenMask allowed, Allowed(tokenizer.get(), position));
    position.allowed = allowed;
    std::vector<float> last;
    BATON_ASSIGN_OR_RETURN(const TextScore score,
                           ScoreTokens(model.get(), tokens, [&](std::span<const float> row) {
                             last.assign(row.begin(), row.end());
                           }));
    BATON_ASSIGN_OR_RETURN(const auto steps, sampling::ExplainSampling(last, info.usable_vocabulary,
                                                                       position, params_, top_));
    BATON_ASSIGN_OR_RETURN(const sampling::Sample drawn,
                           sampling::SampleToken(last, info.usable_vocabulary, position, params_));
    Print(steps, drawn.token, tokenizer.get());
    return absl::OkStatus();
  }

  static std::string TextOf(TokenId id, const tokenizer::Tokenizer* tokenizer) {
    return tokenizer == nullptr ? "" : ReplaceInvalidUtf8(tokenizer->TokenBytes(id));
  }

  void Print(const std::vector<StepDistribution>& steps, TokenId drawn,
             const tokenizer::Tokenizer* tokenizer) const {
    OrderedJson json = {
        {"steps", OrderedJson::array()}, {"drawn", drawn}, {"text", TextOf(drawn, tokenizer)}};
    for (const StepDistribution& step : steps) {
      OrderedJson top = OrderedJson::array();
      if (!json_) std::cout << absl::StreamFormat("%s: %u tokens\n", step.step, step.kept);
      for (const auto& [id, probability] : step.top) {
        const std::string text = TextOf(id, tokenizer);
        top.push_back({{"token_id", id}, {"text", text}, {"probability", probability}});
        if (!json_) {
          std::cout << absl::StreamFormat("  %8u  %9.6f  %s\n", id, probability,
                                          OrderedJson(text).dump());
        }
      }
      json["steps"].push_back({{"step", step.step}, {"kept", step.kept}, {"top", std::move(top)}});
    }
    if (json_) {
      std::cout << json.dump() << std::endl;
    } else {
      std::cout << absl::StreamFormat("drawn with seed %u: %u  %s\n", params_.seed, drawn,
                                      OrderedJson(TextOf(drawn, tokenizer)).dump());
    }
  }

  ModelFlag model_;
  ComputeFlags compute_;
  ConstraintFlags constraint_;
  std::optional<std::string> prompt_, ids_;
  sampling::Params params_;
  double temperature_ = 0, top_p_ = 1, min_p_ = 0, typical_p_ = 1;
  double repetition_penalty_ = 1, presence_penalty_ = 0, frequency_penalty_ = 0;
  std::string logit_bias_;
  std::vector<std::string> bad_token_ids_;
  uint32_t outputs_ = 0, top_ = 5;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeSampleCheckCommand(config::CommandLine& line) {
  return std::make_unique<SampleCheckCommand>(
      line.Command("sample-check", "Show a prompt's next token after each step of sampling."));
}

}  // namespace baton::cli
