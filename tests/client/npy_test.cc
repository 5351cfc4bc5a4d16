// SPDX-License-Identifier: Apache-2.0
#include "client/cli/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

namespace baton::cli {
namespace {

class NpyTest : public ::testing::Test {
 protected:
  ~NpyTest() override { std::filesystem::remove(path_); }

  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::string path_ = ::testing::TempDir() + "baton_npy_test_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(NpyTest, WritesTheDocumentedBytes) {
  auto writer = NpyWriter::Create(path_, 2, 3);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<float> values = {1, 2, 3, 4, 5, -0.5f};
  writer->Append(std::span(values).first(3));
  writer->Append(std::span(values).last(3));
  ASSERT_TRUE(writer->Finish().ok());

  const std::string content = Content();
  ASSERT_GE(content.size(), 10u);
  EXPECT_EQ(content.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<uint8_t>(content[8]) + 256 * static_cast<uint8_t>(content[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  ASSERT_EQ(content.size(), 10 + header + sizeof(float) * values.size());
  const std::string text = content.substr(10, header);
  EXPECT_EQ(text.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"), 0u);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(std::memcmp(content.data() + 10 + header, values.data(), sizeof(float) * 6), 0);
}

TEST_F(NpyTest, MissingRowsAreAnError) {
  auto writer = NpyWriter::Create(path_, 2, 1);
  ASSERT_TRUE(writer.ok());
  writer->Append(std::vector<float>{1});
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kDataLoss);
}

TEST_F(NpyTest, UnwritableFileIsNamed) {
  const absl::Status status = NpyWriter::Create("/nonexistent/x.npy", 1, 1).status();
  EXPECT_NE(std::string(status.message()).find("/nonexistent/x.npy"), std::string::npos);
}

}  // namespace
}  // namespace baton::cli
