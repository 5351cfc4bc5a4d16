// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>

int main(int argc, char** argv) {
  // A peer that goes away must show as an error, not end the test.
  signal(SIGPIPE, SIG_IGN);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
