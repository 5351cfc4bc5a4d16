// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>

// Debian's Abseil is not built for the thread sanitizer, which therefore does
// not see the half of absl::Status's reference count that is not inline.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:absl::*Status::Unref*\n"; }

int main(int argc, char** argv) {
  // A peer that goes away must show as an error, not end the test.
  signal(SIGPIPE, SIG_IGN);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
