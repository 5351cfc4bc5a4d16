// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace baton::testing {

Npy ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  constexpr size_t kPreamble = 10;  // magic, version, header length
  if (bytes.size() < kPreamble || bytes.compare(0, 6, "\x93NUMPY") != 0) {
    ADD_FAILURE() << path << " is not a .npy file";
    return {{0}, {}};
  }
  const size_t header = static_cast<uint8_t>(bytes[8]) + 256u * static_cast<uint8_t>(bytes[9]);
  const std::string text = bytes.substr(kPreamble, header);
  EXPECT_NE(text.find("'<f4'"), std::string::npos) << text;
  EXPECT_NE(text.find("'fortran_order': False"), std::string::npos) << text;
  Npy array;
  uint64_t count = 1;
  const size_t open = text.find('(');
  std::istringstream sizes(text.substr(open + 1, text.find(')') - open - 1));
  for (std::string size; std::getline(sizes, size, ',') && size != " ";) {
    array.shape.push_back(std::stoull(size));
    count *= array.shape.back();
  }
  EXPECT_EQ(bytes.size(), kPreamble + header + count * sizeof(float)) << path;
  array.values.resize(count);
  std::memcpy(array.values.data(), bytes.data() + kPreamble + header, count * sizeof(float));
  return array;
}

}  // namespace baton::testing
