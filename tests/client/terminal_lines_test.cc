// SPDX-License-Identifier: Apache-2.0
#include "client/cli/terminal_lines.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace baton::cli {
namespace {

class TerminalLinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    read_end_ = UniqueFd(fds[0]);
    write_end_ = UniqueFd(fds[1]);
  }
  void Type(const std::string& text) {
    ASSERT_EQ(write(write_end_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  UniqueFd read_end_, write_end_;
  std::string line_;
};

TEST_F(TerminalLinesTest, HandsOutLinesAndALastOneWithoutLineBreak) {
  TerminalLines lines(read_end_.get());
  Type("one\ntwo\nthr");
  EXPECT_EQ(lines.Read(&line_), LineSource::Kind::kLine);
  EXPECT_EQ(line_, "one");
  EXPECT_EQ(lines.Read(&line_), LineSource::Kind::kLine);
  EXPECT_EQ(line_, "two");
  Type("ee");
  write_end_.Reset();
  EXPECT_EQ(lines.Read(&line_), LineSource::Kind::kLine);
  EXPECT_EQ(line_, "three");
  EXPECT_EQ(lines.Read(&line_), LineSource::Kind::kEnd);
}

TEST_F(TerminalLinesTest, InterruptWakesAReadThatWaits) {
  TerminalLines lines(read_end_.get());
  std::thread other([&] { lines.Interrupt(); });
  EXPECT_EQ(lines.Read(&line_), LineSource::Kind::kInterrupted);
  other.join();
  Type("after\n");
  EXPECT_EQ(lines.Read(&line_), LineSource::Kind::kLine);
  EXPECT_EQ(line_, "after");
}

}  // namespace
}  // namespace baton::cli
