// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/normalize.h"

#include <gtest/gtest.h>

namespace baton::tokenizer {
namespace {

// Cases of UAX 15 and its test file, NormalizationTest.txt.
TEST(NormalizeNfc, ComposesCanonically) {
  EXPECT_EQ(NormalizeNfc("e\u0301"), "\u00e9");
  EXPECT_EQ(NormalizeNfc("\u212b"), "\u00c5");                // angstrom sign
  EXPECT_EQ(NormalizeNfc("q\u0307\u0323"), "q\u0323\u0307");  // marks in their order
  EXPECT_EQ(NormalizeNfc("\u1e0b\u0323"), "\u1e0d\u0307");    // taken apart, put together
  EXPECT_EQ(NormalizeNfc("\u1112\u1161\u11ab"), "\ud55c");    // Hangul
  EXPECT_EQ(NormalizeNfc("\u0958"), "\u0915\u093c");          // excluded from composition
  EXPECT_EQ(NormalizeNfc("\ufb01 \u2460 \uff21"), "\ufb01 \u2460 \uff21");  // not compatibility
}

TEST(NormalizeNfc, LeavesAllElseAlone) {
  const std::string zeros("a\0\u00e9\0", 5);
  for (const std::string& text :
       {std::string(), std::string("plain ASCII\r\n\t"), std::string("问：你好 👋🏽"),
        std::string("\u0301e"), zeros}) {
    EXPECT_EQ(NormalizeNfc(text), text);
  }
}

}  // namespace
}  // namespace baton::tokenizer
