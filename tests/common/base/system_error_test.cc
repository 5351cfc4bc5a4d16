// SPDX-License-Identifier: Apache-2.0
#include "common/base/system_error.h"

#include <errno.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(SystemErrorTest, SpellsAnErrnoAsTheSystemDoes) {
  EXPECT_EQ(ErrnoText(ENOENT), "No such file or directory");
}

TEST(SystemErrorTest, SaysTheNumberOfWhatIsNoErrno) {
  EXPECT_NE(ErrnoText(123456).find("123456"), std::string::npos);
}

}  // namespace
}  // namespace baton
