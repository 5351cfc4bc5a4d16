// SPDX-License-Identifier: Apache-2.0
#include "client/cli/model_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelReport EmbeddedReport() {
  const auto checkpoint = checkpoint::OpenCheckpoint("embedded");
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return MakeModelReport(**checkpoint);
}

TEST(ModelReport, DescribesTheEmbeddedModel) {
  const ModelReport report = EmbeddedReport();
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.config.architecture, "chatglm");
  EXPECT_TRUE(report.tokenizer.present);
  EXPECT_EQ(report.prompt_format, "chatglm2");
  uint64_t values = 0, bytes = 0;
  for (const ModelReport::Tensor& tensor : report.tensors) {
    values += tensor.values;
    bytes += tensor.bytes;
  }
  EXPECT_EQ(report.parameters, values);
  EXPECT_EQ(bytes, 2 * values);  // all in f16
}

TEST(ModelReport, TextListsTensorsOnlyWhenAskedTo) {
  const ModelReport report = EmbeddedReport();
  EXPECT_THAT(ReportToText(report, false), HasSubstr("2 KV heads, head size 16, bias on q, k, v"));
  EXPECT_THAT(ReportToText(report, false), Not(HasSubstr(report.tensors[0].name)));
  EXPECT_THAT(ReportToText(report, true), HasSubstr(report.tensors[0].name));
}

TEST(ModelReport, JsonHoldsTheSameFacts) {
  const ModelReport report = EmbeddedReport();
  const auto json = nlohmann::json::parse(ReportToJson(report, true));
  EXPECT_EQ(json["config"]["layers"], report.config.layers);
  EXPECT_EQ(json["config"]["norm_epsilon"], 1e-5);
  EXPECT_EQ(json["tensors"]["count"], report.tensors.size());
  EXPECT_EQ(json["tensors"]["list"].size(), report.tensors.size());
  EXPECT_EQ(json["tensors"]["types"]["F16"]["values"], report.parameters);
  EXPECT_EQ(json["fingerprint"], report.fingerprint);
  EXPECT_TRUE(json["problems"].empty());
}

TEST(ModelReport, ProblemsShow) {
  ModelReport report;
  report.problems = {"weights: tensor x is missing"};
  EXPECT_THAT(ReportToText(report, false),
              HasSubstr("cannot be served: weights: tensor x is missing"));
}

}  // namespace
}  // namespace baton::cli
