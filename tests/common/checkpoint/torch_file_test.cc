// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/checkpoint/shards.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/checkpoint/torch_files.h"
#include "tests/testing/test_data.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

void ExpectTorchFileRefused(const std::string& bytes, const std::string& why,
                            absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto read = ReadTorchFile(MemoryFile(bytes, "bad.bin"));
  EXPECT_EQ(read.status().code(), code) << why << ": " << read.status();
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("bad.bin"));
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(why));
}

// One tensor "t" over a storage of six floats.
std::string One(const TorchTensor& tensor) {
  return TorchFile(PickleOf(PickleDict({{"t", PickleTensor(tensor)}})), {std::string(24, '\x3f')});
}

TEST(TorchFile, ReadsEveryKindOfStorage) {
  const std::string bytes = TorchBuilder()
                                .Tensor("f32", "Float", {2, 3}, std::string(24, 'a'))
                                .Tensor("f16", "Half", {4}, std::string(8, 'b'))
                                .Tensor("bf16", "BFloat16", {1, 1}, "cc")
                                .Tensor("i8", "Char", {3}, "ddd")
                                .Tensor("u8", "Byte", {2}, "ee")
                                .Tensor("i64", "Long", {}, std::string(8, 'f'))
                                .Tensor("empty", "Half", {0, 7}, "")
                                .Build();
  const auto tensors = ReadTorchFile(MemoryFile(bytes));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 7u);
  EXPECT_EQ((*tensors)[0].name, "f32");
  EXPECT_EQ((*tensors)[0].type, TensorType::kF32);
  EXPECT_EQ((*tensors)[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ((*tensors)[0].data.size(), 24u);
  EXPECT_EQ((*tensors)[1].data[0], std::byte{'b'});
  EXPECT_EQ((*tensors)[2].type, TensorType::kBf16);
  EXPECT_EQ((*tensors)[3].type, TensorType::kOther);
  EXPECT_EQ((*tensors)[3].type_name, "I8");
  EXPECT_EQ((*tensors)[5].type_name, "I64");
  EXPECT_TRUE((*tensors)[5].shape.empty());
  EXPECT_EQ((*tensors)[6].data.size(), 0u);
}

TEST(TorchFile, TensorsMayShareAStorageAndBeParameters) {
  const std::string whole = PickleTensor({"Float", "0", 6, {2, 3}});
  const std::string row =
      PickleTensor({.type = "Float", .key = "0", .count = 6, .shape = {3}, .offset = 3});
  const std::string parameter =
      PickleCall(PickleGlobal("torch._utils", "_rebuild_parameter"),
                 {whole, "\x89", PickleCall(PickleGlobal("collections", "OrderedDict"), {})});
  std::string data(24, '\0');
  data[12] = 'x';
  const std::string bytes =
      TorchFile(PickleOf(PickleDict({{"a", whole}, {"b", row}, {"c", parameter}})), {data});
  const auto tensors = ReadTorchFile(MemoryFile(bytes));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[1].data[0], std::byte{'x'});
  EXPECT_EQ((*tensors)[2].data.data(), (*tensors)[0].data.data());
}

TEST(TorchFile, AcceptsContiguousViewsAlone) {
  const auto ok = [](const std::vector<uint64_t>& shape, const std::vector<uint64_t>& strides) {
    const std::string bytes = One({"Float", "0", 6, shape, strides});
    return ReadTorchFile(MemoryFile(bytes)).ok();
  };
  EXPECT_TRUE(ok({2, 3}, {3, 1}));
  EXPECT_TRUE(ok({1, 6}, {77, 1}));  // an extent of 1 has no stride to speak of
  EXPECT_TRUE(ok({2, 0}, {5, 5}));
  EXPECT_FALSE(ok({2, 3}, {1, 2}));  // transposed
  EXPECT_FALSE(ok({2, 2}, {3, 1}));  // a slice
  EXPECT_FALSE(ok({6}, {0}));        // broadcast
  EXPECT_FALSE(ok({2, 3}, {3}));
}

TEST(TorchFile, RefusesTensorsOutsideTheirStorage) {
  ExpectTorchFileRefused(One({"Float", "0", 6, {7}}),
                         "tensor \"t\": its 7 values at 0 reach beyond the 6");
  ExpectTorchFileRefused(One({.type = "Float", .key = "0", .count = 6, .shape = {6}, .offset = 1}),
                         "its 6 values at 1");
  ExpectTorchFileRefused(One({.type = "Float", .key = "0", .count = 6, .shape = {6}, .offset = -1}),
                         "offset, shape or strides");
  ExpectTorchFileRefused(
      One({.type = "Float", .key = "0", .count = 6, .shape = {1}, .offset = INT64_MAX}),
      "reach beyond");
  ExpectTorchFileRefused(One({"Float", "0", 6, {uint64_t{1} << 62, 4}, {4, 1}}),
                         "its size overflows");
  ExpectTorchFileRefused(
      One({"Float", "0", 6, {uint64_t{1} << 32, uint64_t{1} << 32, 0}, {1, 1, 1}}),
      "its size overflows");
  ExpectTorchFileRefused(One({"Float", "0", 6, {UINT64_MAX}, {1}}), "offset, shape or strides");
}

TEST(TorchFile, RefusesStoragesThatAreNotWhatThePickleSays) {
  ExpectTorchFileRefused(One({"Float", "0", 5, {5}}), "holds 24 bytes, not 20");
  ExpectTorchFileRefused(One({"Double", "0", 6, {6}}), "holds 24 bytes, not 48");
  ExpectTorchFileRefused(One({"Float", "0", uint64_t{1} << 62, {6}}), "type or size");
  ExpectTorchFileRefused(One({"Float", "1", 6, {6}}), "no entry \"m/data/1\"");
  ExpectTorchFileRefused(One({"Float", "../data.pkl", 6, {6}}), "no entry \"m/data/../data.pkl\"");
  ExpectTorchFileRefused(One({"Quint8", "0", 6, {6}}), "global torch.Quint8Storage",
                         absl::StatusCode::kUnimplemented);
}

TEST(TorchFile, RefusesDictsOfOtherThings) {
  const std::string tensor = PickleTensor({"Float", "0", 6, {6}});
  const auto file = [](const std::string& value) {
    return TorchFile(PickleOf(value), {std::string(24, '\0')});
  };
  ExpectTorchFileRefused(file("N"), "no dict of tensors");
  ExpectTorchFileRefused(file(tensor), "no dict of tensors");
  ExpectTorchFileRefused(file(PickleDict({{"state_dict", PickleDict({{"t", tensor}})}})),
                         "tensor \"state_dict\": it is no tensor");
  ExpectTorchFileRefused(file(PickleDict({{"t", tensor}, {"t", tensor}})),
                         "\"t\": it stands twice");
  ExpectTorchFileRefused(file("}(" + PickleInt(1) + tensor + "u"), "no name of a tensor");
  ExpectTorchFileRefused(file(PickleDict({{"epoch", PickleInt(3)}})), "\"epoch\": it is no tensor");
  // A dict that holds itself.
  ExpectTorchFileRefused(file("}q\x01" + PickleText("x") + "h\x01s"), "\"x\": it is no tensor");
  ExpectTorchFileRefused(file(PickleDict({{"t", PickleText("id") + "Q"}})), "it is no tensor");
  ExpectTorchFileRefused(file(PickleDict({{"x", PickleCall(PickleGlobal("os", "system"), {})}})),
                         "global os.system", absl::StatusCode::kUnimplemented);
}

TEST(TorchFile, RefusesOtherContainers) {
  using enum absl::StatusCode;
  ExpectTorchFileRefused("", "shorter than a zip container");
  ExpectTorchFileRefused("\x80\x02\x8a\x0al\xfc\x9c", "before 1.6", kUnimplemented);
  ExpectTorchFileRefused(ZipBuilder().Build(), "without data.pkl");
  ZipBuilder zip{.entries = {{.name = "a/data.pkl", .data = PickleOf("}")},
                             {.name = "a/byteorder", .data = "big"}}};
  ExpectTorchFileRefused(zip.Build(), "not little-endian", kUnimplemented);
  zip.entries[1] = {.name = "b/data.pkl", .data = PickleOf("}")};
  ExpectTorchFileRefused(zip.Build(), "two entries named data.pkl");
}

TEST(TorchFile, IndexNamesTheShards) {
  const TempFolder folder;
  folder.Write("pytorch_model.bin.index.json",
               R"({"weight_map":{"a":"pytorch_model-00001-of-00002.bin",)"
               R"("b":"pytorch_model-00002-of-00002.bin"}})");
  folder.Write("pytorch_model-00001-of-00002.bin",
               TorchBuilder().Tensor("a", "Char", {1}, "1").Build());
  const auto disk = OpenDiskFolder(folder.path());
  std::vector<File> files;
  EXPECT_EQ(ReadShards(*disk, kTorchFormat, files).status().code(), absl::StatusCode::kNotFound);
  folder.Write("pytorch_model-00002-of-00002.bin",
               TorchBuilder().Tensor("b", "Char", {1}, "2").Build());
  ASSERT_EQ(FindWeightFormat(*disk), &kTorchFormat);
  const auto tensors = ReadShards(*disk, kTorchFormat, files);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[1].data[0], std::byte{'2'});
}

// Written by PyTorch itself.
TEST(TorchFile, HoldsTheSameTensorsAsTheSafetensorsFile) {
  const std::string folder = testing::SharedData("models/golden-chatglm2-tiny/a");
  BATON_NEED_DATA(folder);
  const auto torch = OpenCheckpoint(folder + "/pytorch_model.f16.bin");
  const auto safetensors = OpenCheckpoint(folder + "/model.f16.safetensors");
  ASSERT_TRUE(torch.ok() && safetensors.ok()) << torch.status();
  EXPECT_EQ((*torch)->format(), "pytorch");
  ASSERT_EQ((*torch)->tensors().size(), (*safetensors)->tensors().size());
  for (const TensorView& tensor : (*torch)->tensors()) {
    bool found = false;
    for (const TensorView& other : (*safetensors)->tensors()) {
      if (other.name != tensor.name) continue;
      found = true;
      EXPECT_EQ(other.shape, tensor.shape);
      EXPECT_EQ(other.type, tensor.type);
      EXPECT_TRUE(
          std::equal(other.data.begin(), other.data.end(), tensor.data.begin(), tensor.data.end()))
          << tensor.name;
    }
    EXPECT_TRUE(found) << tensor.name;
  }
  EXPECT_TRUE((*torch)->Weights().ok()) << (*torch)->Weights().status();
}

}  // namespace
}  // namespace baton::checkpoint
