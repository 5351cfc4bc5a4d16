// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kGgufArray = 9;

// Expects a refusal that names the file and says `why`.
void ExpectGgufRefused(const std::string& bytes, const std::string& why) {
  const auto read = ReadGguf(MemoryFile(bytes, "bad.gguf"));
  ASSERT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("bad.gguf"));
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(why));
}

// Entry of a tensor of `dimensions` at `offset`.
std::string TensorEntry(const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset,
                        std::string_view name = "t") {
  std::string entry = GgufString(name) + Bytes(static_cast<uint32_t>(dimensions.size()));
  for (uint64_t dimension : dimensions) entry += Bytes(dimension);
  return entry + Bytes(type) + Bytes(offset);
}

TEST(Gguf, ReadsKeysAndTensors) {
  const std::string bytes = GgufBuilder()
                                .String("name", "x")
                                .Uint32("count", 7)
                                .Strings("words", {"a", "", "c"})
                                .Tensor("first", {4, 2}, std::string(32, '\1'))
                                .Tensor("second", {3}, std::string(12, '\2'))
                                .Build();
  const auto file = ReadGguf(MemoryFile(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata.Uint("count", 0, 10).value(), 7u);
  EXPECT_EQ(file->metadata.String("name", std::nullopt).value(), "x");
  EXPECT_EQ(**file->metadata.Strings("words"), (std::vector<std::string_view>{"a", "", "c"}));
  ASSERT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->tensors[0].shape, (std::vector<uint64_t>{2, 4}));  // outermost first
  EXPECT_EQ(file->tensors[1].data.size(), 12u);
  EXPECT_EQ(file->tensors[1].data[0], std::byte{2});
}

TEST(Gguf, AcceptsVersionTwoAndNoTensors) {
  GgufBuilder builder;
  builder.version = 2;
  EXPECT_TRUE(ReadGguf(MemoryFile(builder.Build())).ok());
}

TEST(Gguf, HonoursAlignment) {
  GgufBuilder builder;
  builder.alignment = 64;
  builder.Uint32("general.alignment", 64)
      .Tensor("a", {1}, std::string(4, '\1'))
      .Tensor("b", {1}, std::string(4, '\2'));
  const std::string bytes = builder.Build();
  const auto file = ReadGguf(MemoryFile(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors[1].data[0], std::byte{2});
}

TEST(Gguf, TypedAccessNamesTheKey) {
  const std::string bytes = GgufBuilder().String("s", "x").Uint32("n", 7).Build();
  const auto file = ReadGguf(MemoryFile(bytes));
  ASSERT_TRUE(file.ok());
  for (const absl::Status& status :
       {file->metadata.Uint("s", 0, 9).status(), file->metadata.Uint("n", 0, 6).status(),
        file->metadata.Uint("absent", 0, 6).status(),
        file->metadata.String("n", std::nullopt).status(), file->metadata.Number("n", 1.0).status(),
        file->metadata.Strings("n").status(), file->metadata.Bool("n", false).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Gguf, RefusesOtherMagicAndVersions) {
  ExpectGgufRefused("", "GGUF");
  ExpectGgufRefused("FUGG" + GgufBuilder().Build().substr(4), "GGUF");
  for (uint32_t version : {0u, 1u, 4u, 0x03000000u}) {
    GgufBuilder builder;
    builder.version = version;
    ExpectGgufRefused(builder.Build(), "not supported");
  }
}

TEST(Gguf, RefusesCountsThatTheFileCanNotHold) {
  for (int64_t extra : {int64_t{-1}, int64_t{1} << 40, int64_t{1} << 62}) {
    GgufBuilder keys;
    keys.extra_keys = extra;
    ExpectGgufRefused(keys.Build(), "cannot fit");
    GgufBuilder tensors;
    tensors.extra_tensors = extra;
    ExpectGgufRefused(tensors.Build(), "cannot fit");
  }
}

TEST(Gguf, RefusesBadKeys) {
  ExpectGgufRefused(GgufBuilder().Uint32("k", 1).Uint32("k", 2).Build(), "\"k\" stands twice");
  ExpectGgufRefused(GgufBuilder().Uint32("", 1).Build(), "length of a key");
  ExpectGgufRefused(GgufBuilder().Uint32(std::string(65'536, 'k'), 1).Build(), "length of a key");
  ExpectGgufRefused(GgufBuilder().Raw("k", 13, "0000").Build(), "type 13");
  ExpectGgufRefused(GgufBuilder().Raw("k", 255, "0000").Build(), "type 255");
  ExpectGgufRefused(GgufBuilder().Raw("k", 7, "\2").Build(), "bool");
}

TEST(Gguf, RefusesStringsAndArraysLongerThanTheFile) {
  for (uint64_t length : {uint64_t{1} << 60, UINT64_MAX, uint64_t{100}}) {
    ExpectGgufRefused(GgufBuilder().Raw("k", 8, Bytes(length)).Build(), "longer than the file");
    ExpectGgufRefused(
        GgufBuilder().Raw("k", kGgufArray, Bytes<uint32_t>(10) + Bytes(length)).Build(),
        "longer than the file");
    ExpectGgufRefused(
        GgufBuilder().Raw("k", kGgufArray, Bytes<uint32_t>(8) + Bytes(length)).Build(),
        "longer than the file");
  }
}

TEST(Gguf, RefusesDeepNestingWithoutRecursingIntoIt) {
  std::string nested;
  for (int depth = 0; depth < 10'000; ++depth) nested += Bytes(kGgufArray) + Bytes<uint64_t>(1);
  nested += Bytes<uint32_t>(0) + Bytes<uint64_t>(0);
  ExpectGgufRefused(GgufBuilder().Raw("k", kGgufArray, nested).Build(), "nested too deep");
  const std::string two =
      Bytes(kGgufArray) + Bytes<uint64_t>(1) + Bytes<uint32_t>(0) + Bytes<uint64_t>(2) + "ab";
  const std::string bytes = GgufBuilder().Raw("k", kGgufArray, two).Uint32("n", 1).Build();
  EXPECT_TRUE(ReadGguf(MemoryFile(bytes)).ok());
}

TEST(Gguf, RefusesBadAlignment) {
  for (uint32_t alignment : {0u, 4u, 13u, 48u, 1u << 30}) {
    ExpectGgufRefused(GgufBuilder().Uint32("general.alignment", alignment).Build(), "alignment");
  }
  ExpectGgufRefused(GgufBuilder().String("general.alignment", "32").Build(), "alignment");
}

TEST(Gguf, RefusesBadTensorEntries) {
  const std::string data(32, '\0');
  const auto with = [&](const std::string& entry) {
    return GgufBuilder().RawTensor(entry, data).Build();
  };
  ExpectGgufRefused(with(TensorEntry({1, 1, 1, 1, 1}, 0, 0)), "number of dimensions");
  ExpectGgufRefused(with(TensorEntry({UINT64_MAX}, 0, 0)), "overflow");
  ExpectGgufRefused(with(TensorEntry({uint64_t{1} << 33, uint64_t{1} << 33}, 0, 0)), "overflow");
  ExpectGgufRefused(with(TensorEntry({4, (uint64_t{1} << 62) + 1}, 0, 0)), "overflow");
  ExpectGgufRefused(with(TensorEntry({uint64_t{1} << 62}, 0, 0)), "overflow");
  ExpectGgufRefused(with(TensorEntry({4}, 9999, 0)), "type 9999");
  ExpectGgufRefused(with(TensorEntry({4}, 4, 0)), "type 4 does not exist");
  ExpectGgufRefused(with(TensorEntry({33}, 2, 0)), "whole blocks");
  ExpectGgufRefused(with(TensorEntry({8}, 0, 4)), "begin at 4");
  ExpectGgufRefused(with(TensorEntry({8}, 0, UINT64_MAX)), "begin at");
  ExpectGgufRefused(with(TensorEntry({9}, 0, 0)), "beyond the file");
  ExpectGgufRefused(with(TensorEntry({8}, 0, 0, std::string(65, 't'))), "name");
  ExpectGgufRefused(GgufBuilder().Tensor("t", {8}, data).Tensor("t", {8}, data).Build(),
                    "stands twice");
  // Two tensors on the same bytes.
  ExpectGgufRefused(
      GgufBuilder().Tensor("a", {8}, data).RawTensor(TensorEntry({8}, 0, 0), "").Build(),
      "begin at 0, not at 32");
}

TEST(Gguf, RefusesTheFileCutAtAnyByte) {
  GgufBuilder builder = TinyLlamaKeys();
  AddTinyLlamaTensors(builder);
  const std::string whole = builder.Build();
  ASSERT_TRUE(ReadGguf(MemoryFile(whole)).ok());
  for (size_t size = 0; size < whole.size(); size += size < 2000 ? 1 : 37) {
    // A copy of its own, so that a read beyond it is seen by the sanitizer.
    const std::string cut(whole.data(), size);
    EXPECT_FALSE(ReadGguf(MemoryFile(cut)).ok()) << size;
  }
}

}  // namespace
}  // namespace baton::checkpoint
