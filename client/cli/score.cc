// SPDX-License-Identifier: Apache-2.0
// `baton score`: log-probabilities and perplexity of a text; distance of two
// precisions or KV types on a golden file.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/id_list.h"
#include "client/cli/local_model.h"
#include "client/cli/npy.h"
#include "client/cli/teacher_forcing.h"
#include "client/cli/text_source.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

class ScoreCommand final : public Command {
 public:
  explicit ScoreCommand(config::CommandLine* line) : Command(line) {
    model_.Register(*line, "GGUF, safetensors or PyTorch file, its folder, or \"embedded\"");
    compute_.Register(*line);
    line->Add("Text", "text", &text_, "Text to score, behind the model's prefix tokens");
    line->Add("Text", "file", &file_, "File of text to score; - reads standard input");
    line->Add("Text", "ids", &ids_, "Token ids to score, as they are: 1,2,3");
    line->Add("Text", "logits", &logits_, "Also writes the logits as float32 [tokens, vocabulary]");
    line->Add("Comparison", "golden", &golden_,
              "JSON list of {prompt_ids, greedy_ids}: compares --precision and --kv-dtype with "
              "--against and --against-kv-dtype");
    line->AddChoice("Comparison", "against", &against_, {"exact", "fast"},
                    "Precision of the reference, which takes the weights as stored");
    line->AddChoice("Comparison", "against-kv-dtype", &against_kv_dtype_,
                    {"auto", "bf16", "int8", "f32"},
                    "KV type of the reference; auto: bf16 for fast, f32 for exact");
    line->Add("Comparison", "max-ids", &max_ids_, "Leaves out cases with more ids");
    line->Add("Comparison", "position0", &position0_,
              "Also reports the first position of each case, which is left out else");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
  }

  int Run() override {
    const int inputs =
        text_.has_value() + file_.has_value() + ids_.has_value() + golden_.has_value();
    if (inputs != 1) return UsageError("give one of --text, --file, --ids and --golden");
    const absl::Status status = golden_ ? RunGolden() : RunText();
    return status.ok() ? kExitOk : Fail(status);
  }

 private:
  absl::StatusOr<std::vector<TokenId>> Tokens(const checkpoint::Checkpoint& checkpoint) const {
    if (ids_) return ParseIdList("ids", *ids_);
    if (text_) return EncodeText(checkpoint, *text_);
    BATON_ASSIGN_OR_RETURN(const std::string text, ReadText("file", *file_));
    return EncodeText(checkpoint, text);
  }

  absl::Status RunText() const {
    BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
    BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, Tokens(*checkpoint));
    BATON_ASSIGN_OR_RETURN(const model::LoadOptions options, compute_.Options());
    BATON_ASSIGN_OR_RETURN(const auto model, model::LoadModel(*checkpoint, options));
    std::optional<NpyWriter> writer;
    if (logits_) {
      BATON_ASSIGN_OR_RETURN(NpyWriter created, NpyWriter::Create(*logits_, tokens.size(),
                                                                  model->info().vocabulary_size));
      writer = std::move(created);
    }
    BATON_ASSIGN_OR_RETURN(const TextScore score,
                           ScoreTokens(model.get(), tokens, [&](std::span<const float> row) {
                             if (writer) writer->Append(row);
                           }));
    if (writer) BATON_RETURN_IF_ERROR(writer->Finish());
    PrintScore(tokens, score);
    return absl::OkStatus();
  }

  void PrintScore(const std::vector<TokenId>& tokens, const TextScore& score) const {
    if (!json_) {
      std::cout << absl::StreamFormat(
          "%u tokens, %u scored: log-probability %.4f, per token %.4f, perplexity %.4f\n",
          tokens.size(), score.logprobs.size(), score.total,
          score.logprobs.empty() ? 0 : score.total / static_cast<double>(score.logprobs.size()),
          score.perplexity);
      return;
    }
    // Nothing predicts the first token.
    OrderedJson logprobs = OrderedJson::array({nullptr});
    for (double logprob : score.logprobs) logprobs.push_back(logprob);
    std::cout << OrderedJson{{"tokens", tokens.size()},
                             {"logprob", score.total},
                             {"perplexity", score.perplexity},
                             {"token_ids", tokens},
                             {"token_logprobs", std::move(logprobs)}}
                     .dump()
              << std::endl;
  }

  absl::Status RunGolden() const {
    if (logits_) return absl::InvalidArgumentError("--logits does not go with --golden");
    BATON_ASSIGN_OR_RETURN(const std::string text, ReadText("golden", *golden_));
    absl::StatusOr<std::vector<GoldenCase>> cases = ParseGolden(text, max_ids_);
    if (!cases.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(*golden_, ": ", std::string(cases.status().message())));
    }
    if (cases->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(*golden_, " has no case of at most ", max_ids_, " ids"));
    }
    BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
    BATON_ASSIGN_OR_RETURN(model::LoadOptions options, compute_.Options());
    BATON_ASSIGN_OR_RETURN(const auto tested, model::LoadModel(*checkpoint, options));
    BATON_ASSIGN_OR_RETURN(options.precision, ParsePrecision(against_));
    options.weights = model::WeightChoice::kStored;
    BATON_ASSIGN_OR_RETURN(options.kv_type, model::ParseKvChoice(against_kv_dtype_));
    BATON_ASSIGN_OR_RETURN(const auto against, model::LoadModel(*checkpoint, options));
    BATON_ASSIGN_OR_RETURN(const DivergenceReport report,
                           CompareModels(against.get(), tested.get(), *cases));
    PrintReport(report);
    return absl::OkStatus();
  }

  void PrintReport(const DivergenceReport& report) const {
    OrderedJson json = {{"positions", report.later.positions},
                        {"mean_kl", report.later.mean_kl},
                        {"p99_kl", report.later.p99_kl},
                        {"same_top", report.later.same_top}};
    if (position0_) json["mean_kl_position0"] = report.first.mean_kl;
    std::cout << json.dump() << std::endl;
  }

  ModelFlag model_;
  ComputeFlags compute_;
  std::optional<std::string> text_, file_, ids_, logits_, golden_;
  std::string against_ = "exact", against_kv_dtype_ = "auto";
  uint32_t max_ids_ = 400;
  bool position0_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeScoreCommand(config::CommandLine& line) {
  return std::make_unique<ScoreCommand>(line.Command(
      "score", "Score a text in this process, or compare two precisions or KV types."));
}

}  // namespace baton::cli
