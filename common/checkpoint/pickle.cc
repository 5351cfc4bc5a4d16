// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/pickle.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/checkpoint/byte_reader.h"
#include "common/checkpoint/pickle_opcodes.h"

namespace baton::checkpoint {
namespace {

// A checkpoint of 40,000 tensors stays within both.
constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr size_t kMaxNodes = 1'000'000;

constexpr std::string_view kOrderedDict = "collections.OrderedDict";

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, std::span<const std::string_view> globals)
      : bytes_(bytes), globals_(globals), reader_(bytes) {}

  absl::StatusOr<Pickle> Run() {
    if (bytes_.size() > kMaxBytes) {
      return absl::UnimplementedError(
          absl::StrCat("a pickle of ", bytes_.size(), " bytes is over the limit of ", kMaxBytes));
    }
    while (!stopped_) {
      opcode_at_ = reader_.offset();
      uint8_t opcode = 0;
      if (!reader_.Read(opcode)) return Error("the pickle ends without STOP");
      BATON_RETURN_IF_ERROR(Step(opcode));
    }
    return std::move(result_);
  }

 private:
  using Kind = PickleKind;

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " at byte ", opcode_at_, " of the pickle"));
  }
  absl::Status Cut() const { return Error("the pickle ends inside an opcode"); }
  absl::Status Unknown(uint8_t opcode) const;

  absl::Status Step(uint8_t opcode);
  absl::Status StepValue(uint8_t opcode);
  absl::Status StepMemo(uint8_t opcode);
  absl::Status StepContainer(uint8_t opcode);
  absl::Status StepObject(uint8_t opcode);

  absl::Status Push(PickleNode node);
  // At least `count` values above the last mark.
  absl::Status Need(size_t count) const {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    return stack_.size() - floor >= count ? absl::OkStatus() : Error("too few values");
  }
  uint32_t Pop() {
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  // The values above the last mark, which goes with them.
  absl::StatusOr<std::vector<uint32_t>> PopToMark();
  absl::Status PushItems(Kind kind, std::vector<uint32_t> items) {
    return Push({.kind = kind, .items = std::move(items)});
  }
  absl::Status PushNumber(Kind kind, int64_t number) {
    return Push({.kind = kind, .number = number});
  }
  template <typename T>
  absl::Status ReadInt() {
    T value = 0;
    return reader_.Read(value) ? PushNumber(Kind::kInt, value) : Cut();
  }
  absl::Status ReadLong();
  template <typename T>
  absl::Status ReadText();
  template <typename T>
  absl::Status Put();
  template <typename T>
  absl::Status Get();
  absl::Status Memoize(uint64_t index);
  absl::StatusOr<std::string_view> ReadLine();
  absl::Status PushGlobal(std::string_view module, std::string_view name);
  absl::Status Append(Kind kind, std::vector<uint32_t> items);
  absl::Status Reduce();

  std::span<const std::byte> bytes_;
  std::span<const std::string_view> globals_;
  ByteReader reader_;
  size_t opcode_at_ = 0;
  Pickle result_;
  bool stopped_ = false;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, uint32_t> memo_;
};

absl::Status PickleReader::Unknown(uint8_t opcode) const {
  const char* name = "unknown";
  for (const RefusedOpcode& refused : kRefusedOpcodes) {
    if (refused.opcode == opcode) name = refused.name;
  }
  return absl::UnimplementedError(absl::StrFormat(
      "opcode %s (0x%02x) at byte %u of the pickle is not allowed", name, opcode, opcode_at_));
}

absl::Status PickleReader::Push(PickleNode node) {
  if (result_.nodes.size() == kMaxNodes) {
    return absl::UnimplementedError(
        absl::StrCat("a pickle of more than ", kMaxNodes, " values is over the limit"));
  }
  stack_.push_back(static_cast<uint32_t>(result_.nodes.size()));
  result_.nodes.push_back(std::move(node));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> PickleReader::PopToMark() {
  if (marks_.empty()) return Error("no mark");
  const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
  std::vector<uint32_t> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

absl::Status PickleReader::Step(uint8_t opcode) {
  switch (opcode) {
    case kProto: {
      uint8_t version = 0;
      if (!reader_.Read(version)) return Cut();
      if (version < 2 || version > 5) {
        return Error(absl::StrCat("protocol ", version, " is none of 2 to 5"));
      }
      return absl::OkStatus();
    }
    case kFrame: {
      uint64_t length = 0;
      if (!reader_.Read(length)) return Cut();
      return length <= reader_.remaining() ? absl::OkStatus() : Error("a frame beyond the end");
    }
    case kMark:
      marks_.push_back(stack_.size());
      return absl::OkStatus();
    case kStop:
      BATON_RETURN_IF_ERROR(Need(1));
      if (!marks_.empty() || stack_.size() != 1) return Error("values are left over");
      result_.root = stack_.back();
      stopped_ = true;
      return absl::OkStatus();
    default:
      return StepValue(opcode);
  }
}

absl::Status PickleReader::StepValue(uint8_t opcode) {
  switch (opcode) {
    case kNoneValue:
      return Push({});
    case kNewTrue:
    case kNewFalse:
      return PushNumber(Kind::kBool, opcode == kNewTrue ? 1 : 0);
    case kBinInt1:
      return ReadInt<uint8_t>();
    case kBinInt2:
      return ReadInt<uint16_t>();
    case kBinInt:
      return ReadInt<int32_t>();
    case kLong1:
      return ReadLong();
    case kShortBinUnicode:
      return ReadText<uint8_t>();
    case kBinUnicode:
      return ReadText<uint32_t>();
    case kBinUnicode8:
      return ReadText<uint64_t>();
    case kBinFloat: {
      double ignored = 0;
      return reader_.Read(ignored) ? Push({.kind = Kind::kFloat}) : Cut();
    }
    default:
      return StepMemo(opcode);
  }
}

absl::Status PickleReader::StepMemo(uint8_t opcode) {
  switch (opcode) {
    case kBinPut:
      return Put<uint8_t>();
    case kLongBinPut:
      return Put<uint32_t>();
    case kMemoize:
      return Memoize(memo_.size());
    case kBinGet:
      return Get<uint8_t>();
    case kLongBinGet:
      return Get<uint32_t>();
    default:
      return StepContainer(opcode);
  }
}

absl::Status PickleReader::StepContainer(uint8_t opcode) {
  switch (opcode) {
    case kEmptyTuple:
      return PushItems(Kind::kTuple, {});
    case kEmptyList:
      return PushItems(Kind::kList, {});
    case kEmptyDict:
      return PushItems(Kind::kDict, {});
    case kTuple: {
      BATON_ASSIGN_OR_RETURN(std::vector<uint32_t> items, PopToMark());
      return PushItems(Kind::kTuple, std::move(items));
    }
    case kTuple1:
    case kTuple2:
    case kTuple3: {
      const size_t count = opcode - kTuple1 + 1;
      BATON_RETURN_IF_ERROR(Need(count));
      std::vector<uint32_t> items(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
      stack_.resize(stack_.size() - count);
      return PushItems(Kind::kTuple, std::move(items));
    }
    case kAppend:
    case kSetItem: {
      const size_t count = opcode == kAppend ? 1 : 2;
      BATON_RETURN_IF_ERROR(Need(count + 1));
      std::vector<uint32_t> items(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
      stack_.resize(stack_.size() - count);
      return Append(opcode == kAppend ? Kind::kList : Kind::kDict, std::move(items));
    }
    case kAppends:
    case kSetItems: {
      BATON_ASSIGN_OR_RETURN(std::vector<uint32_t> items, PopToMark());
      return Append(opcode == kAppends ? Kind::kList : Kind::kDict, std::move(items));
    }
    default:
      return StepObject(opcode);
  }
}

absl::Status PickleReader::StepObject(uint8_t opcode) {
  switch (opcode) {
    case kGlobalName: {
      BATON_ASSIGN_OR_RETURN(const std::string_view module, ReadLine());
      BATON_ASSIGN_OR_RETURN(const std::string_view name, ReadLine());
      return PushGlobal(module, name);
    }
    case kStackGlobal: {
      BATON_RETURN_IF_ERROR(Need(2));
      const PickleNode &name = result_.at(Pop()), &module = result_.at(Pop());
      if (name.kind != Kind::kText || module.kind != Kind::kText) {
        return Error("a global without a name");
      }
      return PushGlobal(module.text, name.text);
    }
    case kBinPersId: {
      BATON_RETURN_IF_ERROR(Need(1));
      return PushItems(Kind::kPersistent, {Pop()});
    }
    case kReduce:
      return Reduce();
    case kBuild:  // of an OrderedDict: its attributes, such as torch's _metadata
      BATON_RETURN_IF_ERROR(Need(2));
      Pop();
      if (result_.at(stack_.back()).kind != Kind::kDict) return Error("BUILD of what is no dict");
      return absl::OkStatus();
    default:
      return Unknown(opcode);
  }
}

// Two's complement, as many bytes as it takes.
absl::Status PickleReader::ReadLong() {
  uint8_t count = 0;
  if (!reader_.Read(count)) return Cut();
  if (count > sizeof(int64_t)) return Error(absl::StrCat("a number of ", count, " bytes"));
  uint64_t value = 0;
  uint8_t byte = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!reader_.Read(byte)) return Cut();
    value |= uint64_t{byte} << (8 * i);
  }
  if (count > 0 && count < sizeof(int64_t) && (byte & 0x80) != 0)
    value |= ~uint64_t{0} << (8 * count);
  return PushNumber(Kind::kInt, static_cast<int64_t>(value));
}

template <typename T>
absl::Status PickleReader::ReadText() {
  T length = 0;
  PickleNode node;
  node.kind = Kind::kText;
  if (!reader_.Read(length) || !reader_.ReadBytes(length, node.text)) return Cut();
  if (!IsValidUtf8(node.text)) return Error("a text that is not valid UTF-8");
  return Push(std::move(node));
}

template <typename T>
absl::Status PickleReader::Put() {
  T index = 0;
  return reader_.Read(index) ? Memoize(index) : Cut();
}

absl::Status PickleReader::Memoize(uint64_t index) {
  BATON_RETURN_IF_ERROR(Need(1));
  memo_[index] = stack_.back();
  return memo_.size() <= kMaxNodes ? absl::OkStatus() : Error("too many memo entries");
}

template <typename T>
absl::Status PickleReader::Get() {
  T index = 0;
  if (!reader_.Read(index)) return Cut();
  const auto found = memo_.find(index);
  if (found == memo_.end()) return Error(absl::StrCat("no memo entry ", index));
  stack_.push_back(found->second);
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> PickleReader::ReadLine() {
  const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + reader_.offset(),
                              reader_.remaining());
  const size_t end = rest.find('\n');
  std::string_view line, newline;
  if (end == std::string_view::npos || !reader_.ReadBytes(end, line) ||
      !reader_.ReadBytes(1, newline)) {
    return Cut();
  }
  return line;
}

absl::Status PickleReader::PushGlobal(std::string_view module, std::string_view name) {
  PickleNode node;
  node.kind = Kind::kGlobal;
  const auto is = [&](std::string_view allowed) {
    return allowed.size() == module.size() + 1 + name.size() && allowed.starts_with(module) &&
           allowed[module.size()] == '.' && allowed.ends_with(name);
  };
  if (is(kOrderedDict)) node.text = kOrderedDict;
  for (const std::string_view allowed : globals_) {
    if (is(allowed)) node.text = allowed;
  }
  if (!node.text.empty()) return Push(std::move(node));
  return absl::UnimplementedError(
      absl::StrCat("global ", absl::CHexEscape(std::string(module.substr(0, 100))), ".",
                   absl::CHexEscape(std::string(name.substr(0, 100))), " at byte ", opcode_at_,
                   " of the pickle is not allowed"));
}

// To the list or dict on top of the stack.
absl::Status PickleReader::Append(PickleKind kind, std::vector<uint32_t> items) {
  BATON_RETURN_IF_ERROR(Need(1));
  PickleNode& node = result_.nodes[stack_.back()];
  if (node.kind != kind) {
    return Error(kind == Kind::kList ? "an element for what is no list"
                                     : "an item for what is no dict");
  }
  if (kind == Kind::kDict && items.size() % 2 != 0) return Error("a key without a value");
  node.items.insert(node.items.end(), items.begin(), items.end());
  return absl::OkStatus();
}

absl::Status PickleReader::Reduce() {
  BATON_RETURN_IF_ERROR(Need(2));
  const uint32_t arguments = Pop(), callee = Pop();
  if (result_.at(callee).kind != Kind::kGlobal || result_.at(arguments).kind != Kind::kTuple) {
    return Error("REDUCE of something else than a global and a tuple");
  }
  if (result_.at(callee).text != kOrderedDict) {
    return PushItems(Kind::kCall, {callee, arguments});
  }
  if (!result_.at(arguments).items.empty()) return Error("an OrderedDict with arguments");
  return PushItems(Kind::kDict, {});
}

}  // namespace

absl::StatusOr<Pickle> ReadPickle(std::span<const std::byte> bytes,
                                  std::span<const std::string_view> globals) {
  return PickleReader(bytes, globals).Run();
}

}  // namespace baton::checkpoint
