// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/socket_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace baton::decode_worker {
namespace {

class SocketFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/socket-folder-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(SocketFolderTest, IsMadeForThisUserAlone) {
  const auto folder = SocketFolder(root_ + "/new");
  ASSERT_TRUE(folder.ok()) << folder.status();
  struct stat facts = {};
  ASSERT_EQ(stat(folder->c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700);
  EXPECT_TRUE(SocketFolder(root_ + "/new").ok());  // again
}

TEST_F(SocketFolderTest, FolderThatOthersMayWriteToIsRefused) {
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  EXPECT_EQ(SocketFolder(root_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SocketFolderTest, LinksAndFilesAreRefused) {
  ASSERT_EQ(symlink("/tmp", (root_ + "/link").c_str()), 0);
  EXPECT_EQ(SocketFolder(root_ + "/link").status().code(), absl::StatusCode::kFailedPrecondition);
  std::ofstream(root_ + "/file") << "x";
  EXPECT_EQ(SocketFolder(root_ + "/file").status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace baton::decode_worker
