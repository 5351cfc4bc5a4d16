// SPDX-License-Identifier: Apache-2.0
#include "common/cores/share_table.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

namespace baton::cores {
namespace {

class ShareTableTest : public ::testing::Test {
 protected:
  ShareTableTest()
      : path_(::testing::TempDir() + "/share-" + std::to_string(getpid()) + "-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    unlink(path_.c_str());
  }
  ~ShareTableTest() override {
    for (pid_t child : children_) Kill(child);
    unlink(path_.c_str());
  }

  ShareTable Open(Kind kind) {
    auto table = ShareTable::Open(path_, kind);
    EXPECT_TRUE(table.ok()) << table.status();
    return *std::move(table);
  }

  // A process that is busy for ever; returns once it is.
  pid_t StartBusyProcess(Kind kind) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto table = ShareTable::Open(path_, kind);
      if (!table.ok()) _exit(1);
      table->SetBusyUntil(ShareTable::kForever);
      if (write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    children_.push_back(child);
    return child;
  }

  static void Kill(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  void KillNow(pid_t child) {
    Kill(child);
    std::erase(children_, child);
  }

  const std::string path_;
  std::vector<pid_t> children_;
};

TEST_F(ShareTableTest, SeesWorkersOfOtherProcessesByKind) {
  ShareTable mine = Open(Kind::kDecode);
  EXPECT_EQ(mine.Look(0).decode, 1u);
  EXPECT_EQ(mine.Look(0).prefill, 0u);
  StartBusyProcess(Kind::kPrefill);
  StartBusyProcess(Kind::kDecode);
  const Busy busy = mine.Look(0);
  EXPECT_EQ(busy.decode, 2u);
  EXPECT_EQ(busy.prefill, 1u);
  EXPECT_EQ(busy.rank, 0u);
}

TEST_F(ShareTableTest, AKilledWorkerIsNoLongerBusyAndItsPlaceIsFree) {
  ShareTable mine = Open(Kind::kDecode);
  const pid_t child = StartBusyProcess(Kind::kPrefill);
  ASSERT_EQ(mine.Look(0).prefill, 1u);
  KillNow(child);
  EXPECT_EQ(mine.Look(0).prefill, 0u);
  // Its successor takes the place and starts idle.
  ShareTable next = Open(Kind::kPrefill);
  EXPECT_EQ(next.slot(), mine.slot() + 1);
  EXPECT_EQ(mine.Look(0).prefill, 0u);
  next.SetBusyUntil(ShareTable::kForever);
  EXPECT_EQ(mine.Look(0).prefill, 1u);
}

TEST_F(ShareTableTest, ARestartedWorkerFindsTheOthersStillBusy) {
  StartBusyProcess(Kind::kPrefill);
  for (int restart = 0; restart < 3; ++restart) {
    ShareTable mine = Open(Kind::kDecode);
    EXPECT_EQ(mine.Look(0).prefill, 1u);
    KillNow(StartBusyProcess(Kind::kDecode));
    EXPECT_EQ(mine.Look(0).decode, 1u);
  }
}

TEST_F(ShareTableTest, BusyEndsAtItsTime) {
  ShareTable mine = Open(Kind::kDecode), other = Open(Kind::kPrefill);
  other.SetBusyUntil(100);
  EXPECT_EQ(mine.Look(99).prefill, 1u);
  EXPECT_EQ(mine.Look(100).prefill, 0u);
}

TEST_F(ShareTableTest, RanksWorkersOfOneKind) {
  ShareTable a = Open(Kind::kDecode), b = Open(Kind::kPrefill), c = Open(Kind::kDecode);
  for (ShareTable* table : {&a, &b, &c}) table->SetBusyUntil(ShareTable::kForever);
  EXPECT_EQ(a.Look(0).rank, 0u);
  EXPECT_EQ(b.Look(0).rank, 0u);
  EXPECT_EQ(c.Look(0).rank, 1u);
  a.SetBusyUntil(0);
  EXPECT_EQ(c.Look(0).rank, 0u);
}

TEST_F(ShareTableTest, OnlyTheUserMayOpenTheFile) {
  Open(Kind::kDecode);
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_EQ(ShareTable::Open(path_, Kind::kDecode).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShareTableTest, RefusesAFileOfAnotherVersionAndALink) {
  {
    std::ofstream file(path_, std::ios::binary);
    file << "something else entirely";
  }
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  EXPECT_EQ(ShareTable::Open(path_, Kind::kDecode).status().code(),
            absl::StatusCode::kFailedPrecondition);
  unlink(path_.c_str());
  ASSERT_EQ(symlink("/dev/null", path_.c_str()), 0);
  EXPECT_EQ(ShareTable::Open(path_, Kind::kDecode).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ShareTableTest, AFullTableRefusesTheNextWorker) {
  std::vector<ShareTable> tables;
  for (uint32_t i = 0; i < ShareTable::kSlots; ++i) tables.push_back(Open(Kind::kDecode));
  EXPECT_EQ(ShareTable::Open(path_, Kind::kDecode).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton::cores
