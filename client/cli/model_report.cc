// SPDX-License-Identifier: Apache-2.0
#include "client/cli/model_report.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/table.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct TypeSum {
  uint64_t tensors = 0, values = 0, bytes = 0;
};

std::map<std::string, TypeSum> SumByType(const ModelReport& report) {
  std::map<std::string, TypeSum> sums;
  for (const ModelReport::Tensor& tensor : report.tensors) {
    TypeSum& sum = sums[tensor.type];
    ++sum.tensors;
    sum.values += tensor.values;
    sum.bytes += tensor.bytes;
  }
  return sums;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

void ReportTensors(const checkpoint::Checkpoint& checkpoint, ModelReport* report) {
  for (const checkpoint::TensorView& view : checkpoint.tensors()) {
    ModelReport::Tensor tensor;
    tensor.name = view.name;
    tensor.type = view.type_name.empty() ? std::string(checkpoint::TensorTypeName(view.type))
                                         : view.type_name;
    tensor.shape = view.shape;
    tensor.values = 1;
    for (uint64_t extent : view.shape) tensor.values *= extent;
    tensor.bytes = view.data.size() + view.row_scales.size();
    report->parameters += tensor.values;
    report->tensors.push_back(std::move(tensor));
  }
}

void ReportTokenizer(const checkpoint::Checkpoint& checkpoint, ModelReport* report) {
  const auto tokenizer = checkpoint.LoadTokenizer();
  if (!tokenizer.ok()) {
    report->problems.push_back(absl::StrCat("tokenizer: ", Message(tokenizer.status())));
  } else if (*tokenizer != nullptr) {
    report->tokenizer = {true, std::string((*tokenizer)->kind()), (*tokenizer)->size(),
                         (*tokenizer)->prefix(), (*tokenizer)->end_tokens()};
  }
  const auto chat = checkpoint.DetectChatFormat();
  if (chat.ok()) {
    report->prompt_format = chat->name;
    report->default_system = chat->options.default_system;
  } else {
    report->problems.push_back(absl::StrCat("prompt format: ", Message(chat.status())));
  }
}

const char* RopeName(checkpoint::RopeStyle style) {
  return style == checkpoint::RopeStyle::kAdjacentPairs ? "adjacent pairs" : "halves";
}

OrderedJson TensorsToJson(const ModelReport& report, bool all) {
  OrderedJson json = {{"count", report.tensors.size()}, {"types", OrderedJson::object()}};
  for (const auto& [type, sum] : SumByType(report)) {
    json["types"][type] = {{"tensors", sum.tensors}, {"values", sum.values}, {"bytes", sum.bytes}};
  }
  if (!all) return json;
  json["list"] = OrderedJson::array();
  for (const ModelReport::Tensor& tensor : report.tensors) {
    json["list"].push_back({{"name", tensor.name},
                            {"type", tensor.type},
                            {"shape", tensor.shape},
                            {"bytes", tensor.bytes}});
  }
  return json;
}

// 1e-05f as 1e-05, not as the double nearest to it.
double ShortestDouble(float value) { return std::stod(absl::StrFormat("%g", value)); }

OrderedJson ConfigToJson(const checkpoint::ModelConfig& config) {
  return {{"layers", config.layers},
          {"hidden", config.hidden},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"ffn", config.ffn},
          {"vocabulary", config.vocabulary},
          {"context", config.context},
          {"rotary_dims", config.rotary_dims},
          {"rope_style", RopeName(config.rope_style)},
          {"rope_base", config.rope_base},
          {"norm_epsilon", ShortestDouble(config.norm_epsilon)},
          {"qkv_bias", config.qkv_bias},
          {"tied_head", config.tied_head},
          {"end_tokens", config.end_tokens}};
}

std::string ConfigToText(const checkpoint::ModelConfig& config) {
  return absl::StrFormat(
      "architecture   %s: %u layers, hidden %u, ffn %u\n"
      "attention      %u heads, %u KV heads, head size %u%s\n"
      "rotary         %u of each head's values, %s, base %g\n"
      "vocabulary     %u%s\n"
      "context        %u tokens\n"
      "end tokens     %s\n",
      config.architecture, config.layers, config.hidden, config.ffn, config.heads, config.kv_heads,
      config.head_dim, config.qkv_bias ? ", bias on q, k, v" : "", config.rotary_dims,
      RopeName(config.rope_style), config.rope_base, config.vocabulary,
      config.tied_head ? ", head tied to the embedding" : "", config.context,
      absl::StrJoin(config.end_tokens, ", "));
}

std::string TokenizerToText(const ModelReport& report) {
  std::string text = "tokenizer      ";
  if (report.tokenizer.present) {
    absl::StrAppend(&text, report.tokenizer.kind, ", ", report.tokenizer.size, " ids");
    if (!report.tokenizer.prefix.empty()) {
      absl::StrAppend(&text, ", prefix ", absl::StrJoin(report.tokenizer.prefix, " "));
    }
    absl::StrAppend(&text, "\n");
  } else {
    absl::StrAppend(&text, "none: serves token ids alone\n");
  }
  if (!report.prompt_format.empty()) {
    absl::StrAppend(&text, "prompt format  ", report.prompt_format, "\n");
  }
  if (!report.default_system.empty()) {
    absl::StrAppend(&text, "system message \"", report.default_system, "\"\n");
  }
  return text;
}

std::string TensorsToText(const ModelReport& report, bool all) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [type, sum] : SumByType(report)) {
    rows.push_back(
        {type, absl::StrCat(sum.tensors), absl::StrCat(sum.values), FormatBytes(sum.bytes)});
  }
  std::string text = "\n" + FormatTable({"TYPE", "TENSORS", "VALUES", "SIZE"}, rows);
  if (!all) return text;
  rows.clear();
  for (const ModelReport::Tensor& tensor : report.tensors) {
    rows.push_back(
        {tensor.name, tensor.type, absl::StrJoin(tensor.shape, "x"), FormatBytes(tensor.bytes)});
  }
  return text + "\n" + FormatTable({"TENSOR", "TYPE", "SHAPE", "SIZE"}, rows);
}

}  // namespace

ModelReport MakeModelReport(const checkpoint::Checkpoint& checkpoint) {
  ModelReport report;
  report.format = checkpoint.format();
  report.fingerprint = checkpoint.Fingerprint();
  report.file_bytes = checkpoint.file_bytes();
  report.config = checkpoint.config();
  ReportTensors(checkpoint, &report);
  ReportTokenizer(checkpoint, &report);
  if (const auto weights = checkpoint.Weights(); !weights.ok()) {
    report.problems.push_back(absl::StrCat("weights: ", Message(weights.status())));
  }
  return report;
}

std::string ReportToText(const ModelReport& report, bool all) {
  std::string text = absl::StrCat(
      "model          ", report.config.name, "\n", "format         ", report.format, ", ",
      FormatBytes(report.file_bytes), " in files\n", "parameters     ", report.parameters, " in ",
      report.tensors.size(), " tensors\n", ConfigToText(report.config), TokenizerToText(report),
      "fingerprint    ", report.fingerprint, "\n", TensorsToText(report, all));
  for (const std::string& problem : report.problems) {
    absl::StrAppend(&text, "\ncannot be served: ", problem, "\n");
  }
  return text;
}

std::string ReportToJson(const ModelReport& report, bool all) {
  OrderedJson json = {{"name", report.config.name},
                      {"architecture", report.config.architecture},
                      {"format", report.format},
                      {"file_bytes", report.file_bytes},
                      {"parameters", report.parameters},
                      {"config", ConfigToJson(report.config)},
                      {"tensors", TensorsToJson(report, all)},
                      {"tokenizer", nullptr},
                      {"prompt_format", report.prompt_format},
                      {"default_system", report.default_system},
                      {"fingerprint", report.fingerprint},
                      {"problems", report.problems}};
  if (report.tokenizer.present) {
    json["tokenizer"] = {{"kind", report.tokenizer.kind},
                         {"size", report.tokenizer.size},
                         {"prefix", report.tokenizer.prefix},
                         {"end_tokens", report.tokenizer.end_tokens}};
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace baton::cli
