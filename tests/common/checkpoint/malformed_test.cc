// SPDX-License-Identifier: Apache-2.0
// The collection of malformed files, each with what a reader has to make of it.
#include <gtest/gtest.h>

#include "common/checkpoint/gguf.h"
#include "common/checkpoint/json.h"
#include "common/checkpoint/safetensors.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/testing/test_data.h"

namespace baton::checkpoint {
namespace {

absl::Status Read(const std::string& path) {
  const auto file = MapFile(path);
  if (!file.ok()) return file.status();
  return path.ends_with(".gguf") ? ReadGguf(*file).status() : ReadSafetensors(*file).status();
}

TEST(MalformedFiles, AreReadOrRefusedAsExpected) {
  const std::string folder = testing::SharedData("models/malformed");
  BATON_NEED_DATA(folder);
  const auto expected = ParseJsonObject(ReadFile(folder + "/expected.json"), "expected.json");
  ASSERT_TRUE(expected.ok()) << expected.status();
  int files = 0;
  for (const auto& [name, entry] : expected->items()) {
    if (testing::SharedData("models/malformed/" + name).empty()) continue;
    const absl::Status status = Read(folder + "/" + name);
    ++files;
    if (entry["ok"].is_null()) continue;  // must only not crash
    EXPECT_EQ(status.ok(), entry["ok"].get<bool>()) << name << ": " << entry["why"] << status;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << status;
    }
  }
  EXPECT_GE(files, 60);
}

}  // namespace
}  // namespace baton::checkpoint
