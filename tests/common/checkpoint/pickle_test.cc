// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/checkpoint/torch_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr std::array<std::string_view, 1> kGlobals = {"torch.make"};

absl::StatusOr<Pickle> ReadFrom(const std::string& bytes) {
  return ReadPickle(std::as_bytes(std::span(bytes)), kGlobals);
}

void ExpectPickleRefused(const std::string& value, const std::string& why,
                         absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const std::string bytes = PickleOf(value);
  const auto read = ReadFrom(bytes);
  EXPECT_EQ(read.status().code(), code) << why;
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(why));
}

int64_t Number(const std::string& value) {
  const std::string bytes = PickleOf(value);
  const auto pickle = ReadFrom(bytes);
  EXPECT_TRUE(pickle.ok()) << pickle.status();
  if (!pickle.ok()) return -1;
  EXPECT_EQ(pickle->at(pickle->root).kind, PickleKind::kInt);
  return pickle->at(pickle->root).number;
}

TEST(PickleReader, ReadsWholeNumbersOfEveryWidth) {
  using std::string_literals::operator""s;
  EXPECT_EQ(Number("K\xff"), 255);
  EXPECT_EQ(Number("M\x01\x80"), 32769);
  EXPECT_EQ(Number("J\xff\xff\xff\xff"), -1);
  EXPECT_EQ(Number("\x8a\x00"s), 0);
  EXPECT_EQ(Number("\x8a\x01\xff"), -1);
  EXPECT_EQ(Number("\x8a\x02\xff\x00"s), 255);
  EXPECT_EQ(Number("\x8a\x05\x00\x00\x00\x00\x01"s), int64_t{1} << 32);
  EXPECT_EQ(Number(PickleInt(INT64_MIN)), INT64_MIN);
}

TEST(PickleReader, KeepsContainersAndCallsAsData) {
  const std::string bytes =
      PickleOf(PickleDict({{"call", PickleCall(PickleGlobal("torch", "make"), {PickleInt(7)})},
                           {"list", "](" + PickleInt(1) + "Ne"},
                           {"more", "]" + PickleText("x") + "a"},
                           {"pair", "\x88\x89\x86"}}));
  const auto pickle = ReadFrom(bytes);
  ASSERT_TRUE(pickle.ok()) << pickle.status();
  const PickleNode& root = pickle->at(pickle->root);
  ASSERT_EQ(root.kind, PickleKind::kDict);
  ASSERT_EQ(root.items.size(), 8u);
  EXPECT_EQ(pickle->at(root.items[0]).text, "call");
  const PickleNode& call = pickle->at(root.items[1]);
  ASSERT_EQ(call.kind, PickleKind::kCall);
  EXPECT_EQ(pickle->at(call.items[0]).text, "torch.make");
  EXPECT_EQ(pickle->at(pickle->at(call.items[1]).items[0]).number, 7);
  EXPECT_EQ(pickle->at(root.items[3]).items.size(), 2u);
  EXPECT_EQ(pickle->at(pickle->at(root.items[5]).items[0]).text, "x");
  const PickleNode& pair = pickle->at(root.items[7]);
  EXPECT_EQ(pair.kind, PickleKind::kTuple);
  EXPECT_EQ(pickle->at(pair.items[0]).number, 1);
}

// What protocol 4 writes, and an OrderedDict with attributes as in PyTorch.
TEST(PickleReader, ReadsFramesShortTextsAndObjectsWithState) {
  const std::string text = "\x8c\x05torch\x94", name = "\x8c\x04make\x94";
  const std::string body = text + name + "\x93\x94" + ")R" + "h" + std::string(1, '\0') + "\x86.";
  const auto pickle = ReadFrom("\x80\x04\x95" + Bytes<uint64_t>(body.size()) + body);
  ASSERT_TRUE(pickle.ok()) << pickle.status();
  EXPECT_EQ(pickle->at(pickle->root).items.size(), 2u);

  const std::string dict = PickleCall(PickleGlobal("collections", "OrderedDict"), {});
  const std::string with_state =
      PickleOf(dict + PickleText("k") + "Ns" + PickleDict({{"_metadata", dict}}) + "b");
  const auto ordered = ReadFrom(with_state);
  ASSERT_TRUE(ordered.ok()) << ordered.status();
  EXPECT_EQ(ordered->at(ordered->root).kind, PickleKind::kDict);
  EXPECT_EQ(ordered->at(ordered->root).items.size(), 2u);
}

TEST(PickleReader, RefusesEveryOtherGlobalByName) {
  using enum absl::StatusCode;
  ExpectPickleRefused(PickleCall(PickleGlobal("posix", "system"), {PickleText("id")}),
                      "global posix.system", kUnimplemented);
  ExpectPickleRefused(PickleGlobal("builtins", "eval"), "global builtins.eval", kUnimplemented);
  ExpectPickleRefused("\x8c\x02os\x8c\x06system\x93", "global os.system", kUnimplemented);
  ExpectPickleRefused(PickleGlobal("torch", "makes"), "torch.makes", kUnimplemented);
  ExpectPickleRefused(PickleGlobal("torc", "h.make"), "torc.h.make", kUnimplemented);
  ExpectPickleRefused(PickleGlobal("\x1b[2J", "x"), "\\x1b[2J.x", kUnimplemented);
}

TEST(PickleReader, RefusesEveryOtherOpcodeByName) {
  using enum absl::StatusCode;
  ExpectPickleRefused("(ios\nsystem\n", "opcode INST (0x69)", kUnimplemented);
  ExpectPickleRefused("N(\x81", "opcode NEWOBJ (0x81)", kUnimplemented);
  ExpectPickleRefused("\x82\x01", "opcode EXT1", kUnimplemented);
  ExpectPickleRefused("(o", "opcode OBJ", kUnimplemented);
  ExpectPickleRefused("P1\n", "opcode PERSID", kUnimplemented);
  ExpectPickleRefused("\xff", "opcode unknown (0xff) at byte 2", kUnimplemented);
}

TEST(PickleReader, RefusesWhatNoPicklerWrites) {
  EXPECT_FALSE(ReadFrom("").ok());
  EXPECT_FALSE(ReadFrom(std::string("\x80\x01N.", 4)).ok());  // protocol 1
  EXPECT_FALSE(ReadFrom("\x80\x06N.").ok());
  ExpectPickleRefused("", "too few values");
  ExpectPickleRefused("NN", "left over");
  ExpectPickleRefused("(N", "left over");
  ExpectPickleRefused("t", "no mark");
  ExpectPickleRefused("N\x86", "too few values");
  ExpectPickleRefused("N(\x85t", "too few values");  // a mark is a floor
  ExpectPickleRefused("h\x05", "no memo entry 5");
  ExpectPickleRefused("q\x05", "too few values");
  ExpectPickleRefused("NNa", "no list");
  ExpectPickleRefused("]NNs", "no dict");
  ExpectPickleRefused("}(Nu", "a key without a value");
  ExpectPickleRefused("N)R", "REDUCE of something else");
  ExpectPickleRefused(PickleGlobal("torch", "make") + "]R", "REDUCE of something else");
  ExpectPickleRefused(PickleCall(PickleGlobal("collections", "OrderedDict"), {"]"}),
                      "with arguments");
  ExpectPickleRefused("N}b", "BUILD of what is no dict");
  ExpectPickleRefused("NN\x93", "a global without a name");
  ExpectPickleRefused("X\x02" + std::string(3, '\0') + "\xc3\x28", "not valid UTF-8");
  ExpectPickleRefused("\x8a\x09" + std::string(9, '\0'), "a number of 9 bytes");
}

TEST(PickleReader, SizesThatLieAllocateNothing) {
  for (const std::string& value : {std::string("X\xff\xff\xff\xff"), "\x8d" + Bytes(UINT64_MAX),
                                   "\x8d" + Bytes(uint64_t{1} << 62), std::string("\x8c\xff x"),
                                   std::string("cos"), std::string("J\x01")}) {
    ExpectPickleRefused(value, "ends inside an opcode");
  }
  ExpectPickleRefused("\x95" + Bytes(UINT64_MAX), "a frame beyond the end");
  const std::string bytes = PickleOf(std::string(1'100'000, ')'));
  const auto many = ReadFrom(bytes);
  EXPECT_EQ(many.status().code(), absl::StatusCode::kUnimplemented);
  const std::string large(size_t{17} << 20, '(');
  EXPECT_THAT(std::string(ReadFrom(large).status().message()), HasSubstr("over the limit"));
}

TEST(PickleReader, RefusesEveryTruncation) {
  const std::string bytes =
      PickleOf(PickleDict({{"call", PickleCall(PickleGlobal("torch", "make"), {PickleInt(7)})}}));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReadFrom(bytes.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace baton::checkpoint
