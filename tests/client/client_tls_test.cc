// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "client/baton/client.h"
#include "tests/client/scripted_router.h"
#include "tests/client/test_certificate.h"

namespace baton {
namespace {

using testing::MakeTestCertificate;
using testing::ScriptedRouter;
using testing::TestCertificate;

grpc::Status AnswerOk(grpc::ServerContext*, ScriptedRouter::Writer* writer) {
  writer->Write(testing::FinishedEvent(v1::FINISH_REASON_STOP));
  return grpc::Status::OK;
}

class ClientTlsTest : public ::testing::Test {
 protected:
  ClientTlsTest() : folder_(::testing::TempDir() + "baton-tls-" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    Save("cert.pem", certificate_.certificate_pem);
    Save("key.pem", certificate_.key_pem);
  }
  ~ClientTlsTest() override { std::filesystem::remove_all(folder_); }

  void Save(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string File(const std::string& name) const { return folder_ + "/" + name; }

  std::shared_ptr<grpc::ServerCredentials> ServerCredentials(bool demand_certificate) const {
    grpc::SslServerCredentialsOptions options(
        demand_certificate ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                           : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    options.pem_root_certs = certificate_.certificate_pem;
    options.pem_key_cert_pairs.push_back({certificate_.key_pem, certificate_.certificate_pem});
    return grpc::SslServerCredentials(options);
  }

  static Status Ask(const ClientOptions& options) {
    Request request;
    request.prompt = "x";
    request.deadline = std::chrono::seconds(10);
    return Client::Connect(options)->Generate(request).status;
  }

  const TestCertificate certificate_ = MakeTestCertificate();
  const std::string folder_;
};

TEST_F(ClientTlsTest, ChecksTheRouterAgainstTheGivenAuthority) {
  ScriptedRouter router(AnswerOk, ServerCredentials(false));
  ClientOptions options;
  options.router = router.address();
  options.tls_ca = File("cert.pem");
  EXPECT_EQ(Ask(options).message, "");

  Save("other.pem", MakeTestCertificate().certificate_pem);
  options.tls_ca = File("other.pem");
  EXPECT_EQ(Ask(options).code, StatusCode::kUnavailable);
  options.tls_ca.clear();  // plain text
  EXPECT_EQ(Ask(options).code, StatusCode::kUnavailable);
}

TEST_F(ClientTlsTest, NamesItselfWhereTheRouterDemandsIt) {
  ScriptedRouter router(AnswerOk, ServerCredentials(true));
  ClientOptions options;
  options.router = router.address();
  options.tls_ca = File("cert.pem");
  EXPECT_EQ(Ask(options).code, StatusCode::kUnavailable);
  options.tls_cert = File("cert.pem");
  options.tls_key = File("key.pem");
  EXPECT_EQ(Ask(options).message, "");
}

TEST_F(ClientTlsTest, HalfAnIdentityIsRefusedByName) {
  ClientOptions options;
  options.tls_ca = File("cert.pem");
  options.tls_cert = File("cert.pem");
  EXPECT_EQ(Ask(options).field, "tls_key");
  options.tls_cert.clear();
  options.tls_key = File("key.pem");
  EXPECT_EQ(Ask(options).field, "tls_cert");
  options.tls_cert = File("cert.pem");
  options.tls_ca.clear();
  EXPECT_EQ(Ask(options).field, "tls_ca");
}

}  // namespace
}  // namespace baton
