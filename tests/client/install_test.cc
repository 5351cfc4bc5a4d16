// SPDX-License-Identifier: Apache-2.0
// What `cmake --install` leaves is enough to build and run a client elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/client/scripted_router.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class InstallTest : public ::testing::Test {
 protected:
  InstallTest() {
    std::string pattern = ::testing::TempDir() + "baton-install-XXXXXX";
    scratch_ = mkdtemp(pattern.data());
  }
  ~InstallTest() override { std::filesystem::remove_all(scratch_); }

  // Runs a command with both outputs in `output_`; returns its exit code.
  int Run(const std::string& command) {
    output_.clear();
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    char buffer[4096];
    while (fgets(buffer, sizeof(buffer), pipe) != nullptr) output_ += buffer;
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string scratch_, output_;
};

TEST_F(InstallTest, ExampleOutsideTheTreeBuildsAgainstTheInstalledPackageAndStreams) {
  const std::string prefix = scratch_ + "/prefix", build = scratch_ + "/build";
  ASSERT_EQ(Run("cmake --install " BATON_BINARY_DIR " --component client --prefix " + prefix), 0)
      << output_;
  const std::string source = scratch_ + "/example";
  std::filesystem::copy(prefix + "/share/doc/baton/example", source);
  ASSERT_EQ(Run("cmake -S " + source + " -B " + build + " -DCMAKE_PREFIX_PATH=" + prefix), 0)
      << output_;
  ASSERT_EQ(Run("cmake --build " + build), 0) << output_;

  testing::ScriptedRouter router([](grpc::ServerContext*, testing::ScriptedRouter::Writer* writer) {
    writer->Write(testing::TokensEvent(0, {1}, "It is "));
    writer->Write(testing::TokensEvent(1, {2}, "Paris."));
    writer->Write(testing::FinishedEvent(v1::FINISH_REASON_STOP));
    return grpc::Status::OK;
  });
  EXPECT_EQ(Run(build + "/ask " + router.address() + " 'Capital of France?'"), 0);
  EXPECT_THAT(output_, HasSubstr("It is Paris.\n"));
  EXPECT_EQ(router.last_chat.messages(0).content(), "Capital of France?");
  EXPECT_EQ(Run(build + "/ask 127.0.0.1:1 x"), 1);
  EXPECT_THAT(output_, HasSubstr("UNAVAILABLE: no connection to the router at 127.0.0.1:1"));
  EXPECT_TRUE(std::filesystem::exists(prefix + "/share/baton/proto/baton/v1/inference.proto"));
}

}  // namespace
}  // namespace baton
