// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <gtest/gtest.h>

#include "baton/v1/inference.grpc.pb.h"

namespace baton::rpc {
namespace {

class FakeInference final : public baton::v1::Inference::Service {
  grpc::Status ListModels(grpc::ServerContext*, const baton::v1::ListModelsRequest*,
                          baton::v1::ListModelsResponse* response) override {
    response->add_models()->set_name("fake");
    return grpc::Status::OK;
  }
};

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = Server::Start({}, {{"baton.v1.Inference", &service_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                         DefaultChannelArguments());
  }

  FakeInference service_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ServerTest, AnswersOnTheChosenPort) {
  auto stub = baton::v1::Inference::NewStub(channel_);
  grpc::ClientContext context;
  baton::v1::ListModelsResponse response;
  ASSERT_TRUE(stub->ListModels(&context, {}, &response).ok());
  EXPECT_EQ(response.models(0).name(), "fake");
}

TEST_F(ServerTest, RefusesAPortThatIsTakenAndNamesIt) {
  FakeInference other;
  ServerOptions options;
  options.listen = server_->address();
  const auto second = Server::Start(options, {{"baton.v1.Inference", &other}});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(second.status().message()).find(server_->address()), std::string::npos);
}

TEST_F(ServerTest, RefusesACompressedMessage) {
  auto stub = baton::v1::Inference::NewStub(channel_);
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  baton::v1::ListModelsResponse response;
  EXPECT_EQ(stub->ListModels(&context, {}, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServerTest, SurvivesLargeMetadataOfANeighbour) {
  auto stub = baton::v1::Inference::NewStub(channel_);
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    if (i == 0) context.AddMetadata("x-junk", std::string(9'000, 'j'));
    baton::v1::ListModelsResponse response;
    EXPECT_TRUE(stub->ListModels(&context, {}, &response).ok());
  }
}

TEST(ServerOptions, NameTheFlagThatIsWrong) {
  FakeInference service;
  ServerOptions options;
  options.listen = "8500";
  EXPECT_NE(
      std::string(Server::Start(options, {{"s", &service}}).status().message()).find("--listen"),
      std::string::npos);
  options = {};
  options.tls.cert_file = "/nonexistent/cert.pem";
  EXPECT_NE(
      std::string(Server::Start(options, {{"s", &service}}).status().message()).find("--tls-key"),
      std::string::npos);
  options.tls.key_file = "/nonexistent/key.pem";
  EXPECT_NE(std::string(Server::Start(options, {{"s", &service}}).status().message())
                .find("/nonexistent/key.pem"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::rpc
