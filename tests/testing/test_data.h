// SPDX-License-Identifier: Apache-2.0
// Where tests find their files.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace baton::testing {

// A file of tests/data, or of $BATON_TEST_DATA where tests run without their
// sources; always there.
std::string TestData(const std::string& relative);

// A file of the data that is not shipped (real tokenizers, goldens of others):
// $BATON_SHARED_DIR, or ../shared beside the checkout. Empty when absent.
std::string SharedData(const std::string& relative);

// The demo model of the quickstart in its cache folder ($BATON_CACHE_DIR or
// ~/.cache/baton); empty when it was not fetched.
std::string DemoModel();
// Qwen2.5-Coder-1.5B-Instruct as Q4_K_M, if somebody has put it there.
std::string QwenModel();

// What --device the tests of GPU models use: $BATON_TEST_DEVICE, or "emulated".
std::string TestDevice();

}  // namespace baton::testing

// Skips the test when a model is absent that nothing here fetches.
#define BATON_NEED_MODEL(path)                                               \
  do {                                                                       \
    if ((path).empty()) GTEST_SKIP() << "needs a model that is not fetched"; \
  } while (false)

// Skips the test when shared data is absent; with BATON_REQUIRE_DATA=1 (set by
// tests/run.sh --require-data) it fails instead.
#define BATON_NEED_DATA(path)                                                               \
  do {                                                                                      \
    if ((path).empty()) {                                                                   \
      if (getenv("BATON_REQUIRE_DATA") != nullptr) FAIL() << "needs data that is not here"; \
      GTEST_SKIP() << "needs data that is not shipped with the project";                    \
    }                                                                                       \
  } while (false)
