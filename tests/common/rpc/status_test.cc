// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton::rpc {
namespace {

TEST(Status, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    const grpc::Status wire = ToGrpc(status);
    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    EXPECT_EQ(FromGrpc(wire).code(), status.code());
  }
}

TEST(Status, AFieldAtFaultTravelsInTheDetails) {
  const absl::Status status = BadField("sampling.top_p", "0 is not in (0, 1]");
  EXPECT_EQ(status.message(), "sampling.top_p: 0 is not in (0, 1]");
  const absl::Status back = FromGrpc(ToGrpc(status));
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FieldOf(back), "sampling.top_p");
  EXPECT_FALSE(RetryAfterOf(back).has_value());
}

TEST(Status, ARetryDelayTravelsInTheDetails) {
  const absl::Status back = FromGrpc(
      ToGrpc(Retry(absl::StatusCode::kResourceExhausted, "queue full", absl::Milliseconds(1500))));
  EXPECT_EQ(back.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfterOf(back), absl::Milliseconds(1500));
}

TEST(Status, LongOrInvalidMessagesStayWithinWhatTrailersCarry) {
  const grpc::Status wire =
      ToGrpc(BadField("prompt", absl::StrCat(std::string(100'000, 'x'), "\xFF")));
  EXPECT_LE(wire.error_message().size(), 5'000u);
  EXPECT_LE(wire.error_details().size(), 12'000u);
  EXPECT_EQ(ToGrpc(absl::InternalError("\xC0\x80")).error_message(), "\uFFFD\uFFFD");
}

}  // namespace
}  // namespace baton::rpc
