// SPDX-License-Identifier: Apache-2.0
#include "client/cli/table.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

TEST(Table, AlignsNumbersToTheRightAndTextToTheLeft) {
  EXPECT_EQ(FormatTable({"NAME", "N", "KIND"}, {{"é", "10", "x"}, {"longer", "9", "yy"}}),
            "NAME     N  KIND\n"
            "é       10  x\n"
            "longer   9  yy\n");
}

TEST(Table, BytesInReadableUnits) {
  EXPECT_EQ(FormatBytes(1000), "1000 bytes");
  EXPECT_EQ(FormatBytes(3 << 19), "1.50 MiB");
  EXPECT_EQ(FormatBytes(uint64_t{5} << 40), "5.00 TiB");
}

}  // namespace
}  // namespace baton::cli
