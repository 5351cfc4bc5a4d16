// SPDX-License-Identifier: Apache-2.0
#include "router/request_parser.h"

#include <gtest/gtest.h>

#include "baton/v1/inference.pb.h"
#include "common/rpc/status.h"

namespace baton::router {
namespace {

const std::string kBad = "\xFF\xFE\xC0\x80\xED\xA0\x80";

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// protobuf writes invalid UTF-8 without complaint but a log line.
template <typename Request>
absl::Status Parse(const Request& request) {
  Request parsed;
  return ParseRequest(Buffer(request.SerializePartialAsString()), 4 << 20, &parsed);
}

class RequestParser : public ::testing::Test {
 protected:
  RequestParser() { google::protobuf::SetLogHandler(nullptr); }
};

TEST_F(RequestParser, ReadsWhatIsValid) {
  v1::GenerateRequest request;
  request.set_prompt("你好, \U0010FFFF");
  request.mutable_stop()->add_stop("é");
  v1::GenerateRequest parsed;
  ASSERT_TRUE(ParseRequest(Buffer(request.SerializeAsString()), 1000, &parsed).ok());
  EXPECT_EQ(parsed.prompt(), request.prompt());
}

TEST_F(RequestParser, NamesThePromptWithInvalidUtf8) {
  v1::GenerateRequest request;
  request.set_prompt(kBad);
  const absl::Status status = Parse(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rpc::FieldOf(status), "prompt");
}

TEST_F(RequestParser, NamesNestedAndRepeatedFieldsWithTheirIndex) {
  v1::GenerateRequest generate;
  generate.set_prompt("fine");
  generate.mutable_stop()->add_stop("fine");
  generate.mutable_stop()->add_stop(kBad);
  EXPECT_EQ(rpc::FieldOf(Parse(generate)), "stop.stop[1]");

  v1::ChatRequest chat;
  chat.add_messages()->set_content("fine");
  chat.add_messages()->set_content("also");
  chat.mutable_messages(1)->set_role(kBad);
  EXPECT_EQ(rpc::FieldOf(Parse(chat)), "messages[1].role");

  v1::TokenizeRequest tokenize;
  tokenize.mutable_conversation()->add_messages()->set_content(kBad);
  EXPECT_EQ(rpc::FieldOf(Parse(tokenize)), "conversation.messages[0].content");
}

TEST_F(RequestParser, RefusesBytesThatAreNoMessageWithoutNamingAField) {
  v1::GenerateRequest parsed;
  for (const std::string& bytes :
       {std::string("\x0A\xFF\xFF\xFF\xFF\x0F"), std::string("\x0A\x05x"), std::string("\x0F"),
        std::string("\x0A\x02ok\xFF")}) {
    const absl::Status status = ParseRequest(Buffer(bytes), 1000, &parsed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rpc::FieldOf(status), std::nullopt);
  }
}

TEST_F(RequestParser, NamesSizeAndLimitOfAMessageThatIsTooBig) {
  v1::GenerateRequest parsed;
  const absl::Status status = ParseRequest(Buffer(std::string(101, 'x')), 100, &parsed);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the request has 101 bytes; the limit is 100");
}

}  // namespace
}  // namespace baton::router
