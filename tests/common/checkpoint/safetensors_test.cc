// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/checkpoint/shards.h"
#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

void ExpectSafetensorsRefused(const std::string& bytes, const std::string& why) {
  const auto read = ReadSafetensors(MemoryFile(bytes, "bad.safetensors"));
  ASSERT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("bad.safetensors"));
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(why));
}

std::string OneTensor(const std::string& fields, size_t data_bytes = 16) {
  return Safetensors("{\"t\":{" + fields + "}}", std::string(data_bytes, '\0'));
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string bytes = Safetensors(
      R"(  {"b":{"dtype":"I32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"k":"v"},)"
      R"("a\u00e9":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},)"
      R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
      R"("empty":{"dtype":"BF16","shape":[0,3],"data_offsets":[16,16]}}   )",
      "0123456789abcdef");
  const auto tensors = ReadSafetensors(MemoryFile(bytes));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  EXPECT_EQ((*tensors)[0].name, "a\u00e9");
  EXPECT_EQ((*tensors)[0].type, TensorType::kF16);
  EXPECT_EQ((*tensors)[0].shape, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ((*tensors)[1].type, TensorType::kOther);
  EXPECT_EQ((*tensors)[1].type_name, "I32");
  EXPECT_EQ((*tensors)[1].data[0], std::byte{'4'});
  EXPECT_EQ((*tensors)[3].data.size(), 0u);
}

TEST(Safetensors, RefusesBadHeaderLengths) {
  ExpectSafetensorsRefused("", "shorter");
  ExpectSafetensorsRefused("1234567", "shorter");
  ExpectSafetensorsRefused(Bytes<uint64_t>(0), "not JSON");
  ExpectSafetensorsRefused(Bytes<uint64_t>(60), "header of 60");
  ExpectSafetensorsRefused(Bytes<uint64_t>(UINT64_MAX) + "{}", "header of");
  ExpectSafetensorsRefused(Bytes<uint64_t>(100'000'001) + "{}", "over the limit");
}

TEST(Safetensors, RefusesBadHeaderText) {
  for (const char* header : {"{", "[]", "3", "\xFF\xFE", "{\"a\xFF\":1}", "nul"}) {
    ExpectSafetensorsRefused(Safetensors(header, ""), "JSON");
  }
  ExpectSafetensorsRefused(Safetensors(std::string("{}\0\0", 4), ""), "NUL");
  ExpectSafetensorsRefused(Safetensors("{\"a\":" + std::string(50'000, '['), ""),
                           "nested too deep");
  ExpectSafetensorsRefused(Safetensors(R"({"__metadata__":{"k":1}})", ""), "__metadata__");
  ExpectSafetensorsRefused(Safetensors(R"({"t":1})", ""), "no object");
  ExpectSafetensorsRefused(Safetensors(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                       "x"),
                           "stands twice");
}

TEST(Safetensors, RefusesBadEntriesByTensor) {
  ExpectSafetensorsRefused(OneTensor(R"("shape":[4],"data_offsets":[0,16])"), "\"t\": no dtype");
  ExpectSafetensorsRefused(OneTensor(R"("dtype":"X7","shape":[4],"data_offsets":[0,16])"), "X7");
  ExpectSafetensorsRefused(OneTensor(R"("dtype":"F32","data_offsets":[0,16])"), "no shape");
  for (const char* offsets : {"[0,16,16]", "[0]", "[-1,15]", "[0,\"16\"]", "[0,16.0]", "7"}) {
    ExpectSafetensorsRefused(
        OneTensor(R"("dtype":"F32","shape":[4],"data_offsets":)" + std::string(offsets)),
        "two whole numbers");
  }
  for (const char* shape : {"[-4]", "[\"4\"]", "[4.0]", "[null]", "[[4]]"}) {
    ExpectSafetensorsRefused(
        OneTensor(R"("dtype":"F32","data_offsets":[0,16],"shape":)" + std::string(shape)),
        "no whole number");
  }
}

TEST(Safetensors, RefusesSizesThatDoNotAgree) {
  ExpectSafetensorsRefused(OneTensor(R"("dtype":"F32","shape":[1000,1000],"data_offsets":[0,16])"),
                           "need 4000000");
  ExpectSafetensorsRefused(
      OneTensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16])"),
      "overflows");
  ExpectSafetensorsRefused(
      OneTensor(R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,16])"),
      "overflows");
  ExpectSafetensorsRefused(OneTensor(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"),
                           "ends before");
  ExpectSafetensorsRefused(OneTensor(R"("dtype":"F32","shape":[4],"data_offsets":[16,32])"),
                           "follow byte 0");
}

TEST(Safetensors, RefusesHolesOverlapsAndTails) {
  const std::string fields = R"("dtype":"F32","shape":[4],"data_offsets":[0,16])";
  ExpectSafetensorsRefused(OneTensor(fields, 15), "bytes there are");
  ExpectSafetensorsRefused(OneTensor(fields, 17), "end at byte 16 of 17");
  ExpectSafetensorsRefused(Safetensors(R"({"k":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                       R"("v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                                       "1234"),
                           "follow byte 4");
  ExpectSafetensorsRefused(Safetensors(R"({"k":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("v":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                                       "1234"),
                           "\"v\"");
}

// Two shards and their index, each replaceable.
struct Shards {
  std::string index = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})";
  std::string first = Safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1");
  std::string second = Safetensors(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "2");

  absl::StatusOr<std::vector<TensorView>> Read(std::vector<File>& files) const {
    const TempFolder folder;
    folder.Write("model.safetensors.index.json", index);
    folder.Write("1.safetensors", first);
    folder.Write("2.safetensors", second);
    return ReadShards(*OpenDiskFolder(folder.path()), kSafetensorsFormat, files);
  }
};

TEST(Safetensors, ReadsAllShards) {
  std::vector<File> files;
  const auto tensors = Shards().Read(files);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].data[0], std::byte{'2'});  // still mapped, though the file is gone
  EXPECT_EQ(files.size(), 2u);
}

TEST(Safetensors, RefusesAnIndexThatDisagreesWithItsShards) {
  const auto refused = [](const Shards& shards, absl::StatusCode code) {
    std::vector<File> files;
    EXPECT_EQ(shards.Read(files).status().code(), code) << shards.index;
  };
  using enum absl::StatusCode;
  refused({.index = "{}"}, kInvalidArgument);
  refused({.index = R"({"weight_map":{"a":1}})"}, kInvalidArgument);
  refused({.index = R"({"weight_map":{"a":"1.safetensors"}})", .first = Shards().second},
          kInvalidArgument);
  refused({.index = R"({"weight_map":{"a":"1.safetensors","x":"2.safetensors"}})"},
          kInvalidArgument);
  refused(
      {.index = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"}})"},
      kInvalidArgument);
  refused({.index = R"({"weight_map":{"a":"1.safetensors","b":"3.safetensors"}})"}, kNotFound);
  refused({.index = R"({"weight_map":{"a":"../1.safetensors"}})"}, kInvalidArgument);
  refused({.index = R"({"weight_map":{"a":"/etc/passwd"}})"}, kInvalidArgument);
  refused({.index = R"({"weight_map":{"a":""}})"}, kInvalidArgument);
}

}  // namespace
}  // namespace baton::checkpoint
