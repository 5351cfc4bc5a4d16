// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace baton::sampling {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// OK, or the name of the field that is refused.
void ExpectRefused(const Params& params, const char* field) {
  const absl::Status status = Validate(params);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_THAT(std::string(status.message()), HasSubstr(field));
}

TEST(SamplingParams, DefaultsAndBordersAreValid) {
  EXPECT_TRUE(Validate(Params()).ok());
  EXPECT_TRUE(Validate({.temperature = 100,
                        .top_k = UINT32_MAX,
                        .top_p = 1e-30f,
                        .repetition_penalty = 10,
                        .logprobs = 20})
                  .ok());
  EXPECT_TRUE(Validate({.temperature = 1e-7f, .repetition_penalty = 1e-9f}).ok());
}

TEST(SamplingParams, RefusalNamesTheField) {
  for (float bad : {-1.0f, 101.0f, kNan, kInf}) ExpectRefused({.temperature = bad}, "temperature");
  for (float bad : {0.0f, -1.0f, 2.0f, kNan, kInf}) ExpectRefused({.top_p = bad}, "top_p");
  for (float bad : {0.0f, -1.0f, 11.0f, kNan, kInf}) {
    ExpectRefused({.repetition_penalty = bad}, "repetition_penalty");
  }
  for (float bad : {-0.1f, 1.1f, kNan}) ExpectRefused({.min_p = bad}, "min_p");
  for (float bad : {0.0f, 1.1f, kNan}) ExpectRefused({.typical_p = bad}, "typical_p");
  for (float bad : {-2.1f, 2.1f, kNan, kInf}) {
    ExpectRefused({.presence_penalty = bad}, "presence_penalty");
    ExpectRefused({.frequency_penalty = bad}, "frequency_penalty");
  }
  ExpectRefused({.logit_bias = {{3, 0.0f}, {7, 101.0f}}}, "logit_bias[7]");
  ExpectRefused({.logit_bias = std::vector<std::pair<TokenId, float>>(1025)}, "logit_bias");
  ExpectRefused({.bad_sequences = {{1}, {}}}, "bad_token_sequences[1]");
  ExpectRefused({.bad_sequences = {std::vector<TokenId>(33)}}, "bad_token_sequences[0]");
  ExpectRefused({.logprobs = 21}, "logprobs");
}

}  // namespace
}  // namespace baton::sampling
