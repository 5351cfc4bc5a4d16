// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/byte_reader.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMinVersion = 2, kMaxVersion = 3;
constexpr uint32_t kDefaultAlignment = 32, kMaxAlignment = 1 << 20;
constexpr size_t kMaxKeyBytes = 65'535, kMaxTensorNameBytes = 64;
constexpr uint32_t kMaxDimensions = 4;
constexpr int kMaxArrayDepth = 4;
// The least that one entry takes: length, type and value; length, number of
// dimensions, type and offset.
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1, kMinTensorBytes = 8 + 4 + 4 + 8;

enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// Fewest bytes of one value; 0 for a type that does not exist.
uint64_t MinBytes(uint32_t type) {
  constexpr uint8_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

// Numbered as in ggml; those without a name were removed from the format.
struct GgmlType {
  const char* name;
  TensorType type;
  BlockShape block;
};
constexpr TensorType kOther = TensorType::kOther;
constexpr GgmlType kGgmlTypes[] = {
    {"F32", TensorType::kF32, {1, 4}},
    {"F16", TensorType::kF16, {1, 2}},
    {"Q4_0", TensorType::kQ4_0, {32, 18}},
    {"Q4_1", TensorType::kQ4_1, {32, 20}},
    {nullptr, kOther, {}},
    {nullptr, kOther, {}},
    {"Q5_0", TensorType::kQ5_0, {32, 22}},
    {"Q5_1", TensorType::kQ5_1, {32, 24}},
    {"Q8_0", TensorType::kQ8_0, {32, 34}},
    {"Q8_1", kOther, {32, 36}},
    {"Q2_K", kOther, {256, 84}},
    {"Q3_K", kOther, {256, 110}},
    {"Q4_K", TensorType::kQ4K, {256, 144}},
    {"Q5_K", TensorType::kQ5K, {256, 176}},
    {"Q6_K", TensorType::kQ6K, {256, 210}},
    {"Q8_K", kOther, {256, 292}},
    {"IQ2_XXS", kOther, {256, 66}},
    {"IQ2_XS", kOther, {256, 74}},
    {"IQ3_XXS", kOther, {256, 98}},
    {"IQ1_S", kOther, {256, 50}},
    {"IQ4_NL", kOther, {32, 18}},
    {"IQ3_S", kOther, {256, 110}},
    {"IQ2_S", kOther, {256, 82}},
    {"IQ4_XS", kOther, {256, 136}},
    {"I8", kOther, {1, 1}},
    {"I16", kOther, {1, 2}},
    {"I32", kOther, {1, 4}},
    {"I64", kOther, {1, 8}},
    {"F64", kOther, {1, 8}},
    {"IQ1_M", kOther, {256, 56}},
    {"BF16", TensorType::kBf16, {1, 2}},
    {nullptr, kOther, {}},
    {nullptr, kOther, {}},
    {nullptr, kOther, {}},
    {"TQ1_0", kOther, {256, 54}},
    {"TQ2_0", kOther, {256, 66}},
    {nullptr, kOther, {}},
    {nullptr, kOther, {}},
    {nullptr, kOther, {}},
    {"MXFP4", kOther, {32, 17}},
};

// value rounded up to a multiple of alignment, which is a power of two.
bool AlignUp(uint64_t value, uint64_t alignment, uint64_t& aligned) {
  if (__builtin_add_overflow(value, alignment - 1, &aligned)) return false;
  aligned &= ~(alignment - 1);
  return true;
}

}  // namespace

// Walks through a file once.
class GgufReader {
 public:
  explicit GgufReader(const File& file)
      : file_(file), reader_(file.bytes), result_{GgufMetadata(file.name), {}} {}

  absl::StatusOr<GgufFile> Run() {
    BATON_RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < key_values_; ++i) BATON_RETURN_IF_ERROR(ReadKeyValue());
    BATON_RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < tensors_; ++i) BATON_RETURN_IF_ERROR(ReadTensor());
    BATON_RETURN_IF_ERROR(PlaceTensors());
    return std::move(result_);
  }

 private:
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.name, ": ", std::string(what), " (at offset ", reader_.offset(), ")"));
  }
  absl::Status TensorError(std::string_view name, std::string_view what) const {
    return Error(absl::StrCat("tensor \"", std::string(name), "\": ", std::string(what)));
  }

  absl::Status ReadHeader();
  absl::Status ReadKeyValue();
  absl::Status ReadValue(uint32_t type, GgufValue& value);
  absl::Status ReadArrayHead(uint32_t& type, uint64_t& count);
  absl::Status ReadArray(GgufValue& value);
  absl::Status SkipArray(int depth);
  absl::Status ReadAlignment();
  absl::Status ReadTensor();
  absl::Status PlaceTensors();

  template <typename Stored, typename Kept>
  absl::Status ReadScalar(Kept& kept) {
    Stored stored = 0;
    if (!reader_.Read(stored)) return Error("the file ends inside a value");
    kept = stored;  // NOLINT(bugprone-signed-char-misuse): an int8 keeps its sign
    return absl::OkStatus();
  }
  absl::Status ReadScalar(uint32_t type, GgufValue& value);

  template <typename Kept>
  absl::Status ReadElements(uint32_t type, uint64_t count, GgufValue& value) {
    std::vector<Kept> elements;
    elements.reserve(count);  // ReadArrayHead bounded it by the file's bytes
    for (uint64_t i = 0; i < count; ++i) {
      GgufValue element;
      BATON_RETURN_IF_ERROR(ReadScalar(type, element));
      elements.push_back(std::get<Kept>(element));
    }
    value = std::move(elements);
    return absl::OkStatus();
  }

  struct Placement {
    uint64_t offset = 0, bytes = 0;
  };

  const File& file_;
  ByteReader reader_;
  GgufFile result_;
  uint64_t key_values_ = 0, tensors_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<Placement> placements_;  // by tensor
  std::unordered_set<std::string_view> names_;
};

absl::Status GgufReader::ReadHeader() {
  if (!file_.text().starts_with(kMagic)) return Error("it does not begin with \"GGUF\"");
  uint32_t magic = 0, version = 0;
  if (!reader_.Read(magic) || !reader_.Read(version) || !reader_.Read(tensors_) ||
      !reader_.Read(key_values_)) {
    return Error("the file ends inside its header");
  }
  if (version < kMinVersion || version > kMaxVersion) {
    const bool big_endian = version > 0xFFFF;
    return Error(big_endian ? "big-endian GGUF is not supported"
                            : absl::StrCat("GGUF version ", version, " is not supported"));
  }
  if (key_values_ > reader_.remaining() / kMinKeyValueBytes ||
      tensors_ > reader_.remaining() / kMinTensorBytes) {
    return Error(absl::StrCat(key_values_, " keys and ", tensors_, " tensors cannot fit into ",
                              file_.bytes.size(), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status GgufReader::ReadKeyValue() {
  std::string_view key;
  uint32_t type = 0;
  if (!reader_.ReadString(key) || key.empty() || key.size() > kMaxKeyBytes) {
    return Error("bad length of a key");
  }
  if (!reader_.Read(type)) return Error("the file ends inside a value");
  GgufValue value;
  BATON_RETURN_IF_ERROR(ReadValue(type, value));
  if (!result_.metadata.values_.try_emplace(key, std::move(value)).second) {
    return Error(absl::StrCat("key \"", std::string(key), "\" stands twice"));
  }
  return absl::OkStatus();
}

absl::Status GgufReader::ReadValue(uint32_t type, GgufValue& value) {
  return type == kArray ? ReadArray(value) : ReadScalar(type, value);
}

absl::Status GgufReader::ReadScalar(uint32_t type, GgufValue& value) {
  switch (type) {
    case kUint8:
      return ReadScalar<uint8_t>(value.emplace<uint64_t>());
    case kUint16:
      return ReadScalar<uint16_t>(value.emplace<uint64_t>());
    case kUint32:
      return ReadScalar<uint32_t>(value.emplace<uint64_t>());
    case kUint64:
      return ReadScalar<uint64_t>(value.emplace<uint64_t>());
    case kInt8:
      return ReadScalar<int8_t>(value.emplace<int64_t>());
    case kInt16:
      return ReadScalar<int16_t>(value.emplace<int64_t>());
    case kInt32:
      return ReadScalar<int32_t>(value.emplace<int64_t>());
    case kInt64:
      return ReadScalar<int64_t>(value.emplace<int64_t>());
    case kFloat32:
      return ReadScalar<float>(value.emplace<double>());
    case kFloat64:
      return ReadScalar<double>(value.emplace<double>());
    case kBool: {
      uint8_t byte = 0;
      if (!reader_.Read(byte) || byte > 1) return Error("a bool is neither 0 nor 1");
      value = byte == 1;
      return absl::OkStatus();
    }
    case kString: {
      std::string_view text;
      if (!reader_.ReadString(text)) return Error("a string is longer than the file");
      value = text;
      return absl::OkStatus();
    }
    default:
      return Error(absl::StrCat("value type ", type, " does not exist"));
  }
}

absl::Status GgufReader::ReadArrayHead(uint32_t& type, uint64_t& count) {
  if (!reader_.Read(type) || !reader_.Read(count)) return Error("the file ends inside an array");
  const uint64_t element_bytes = MinBytes(type);
  if (element_bytes == 0) return Error(absl::StrCat("value type ", type, " does not exist"));
  if (count > reader_.remaining() / element_bytes) {
    return Error(absl::StrCat("an array of ", count, " elements is longer than the file"));
  }
  return absl::OkStatus();
}

absl::Status GgufReader::ReadArray(GgufValue& value) {
  uint32_t type = 0;
  uint64_t count = 0;
  BATON_RETURN_IF_ERROR(ReadArrayHead(type, count));
  switch (type) {
    case kUint8:
    case kUint16:
    case kUint32:
    case kUint64:
      return ReadElements<uint64_t>(type, count, value);
    case kInt8:
    case kInt16:
    case kInt32:
    case kInt64:
      return ReadElements<int64_t>(type, count, value);
    case kFloat32:
    case kFloat64:
      return ReadElements<double>(type, count, value);
    case kBool:
      return ReadElements<bool>(type, count, value);
    case kString:
      return ReadElements<std::string_view>(type, count, value);
    default:
      value = GgufArrayOfArrays{};
      for (uint64_t i = 0; i < count; ++i) BATON_RETURN_IF_ERROR(SkipArray(2));
      return absl::OkStatus();
  }
}

absl::Status GgufReader::SkipArray(int depth) {
  if (depth > kMaxArrayDepth) return Error("arrays are nested too deep");
  uint32_t type = 0;
  uint64_t count = 0;
  BATON_RETURN_IF_ERROR(ReadArrayHead(type, count));
  for (uint64_t i = 0; i < count; ++i) {
    GgufValue ignored;
    BATON_RETURN_IF_ERROR(type == kArray ? SkipArray(depth + 1) : ReadScalar(type, ignored));
  }
  return absl::OkStatus();
}

absl::Status GgufReader::ReadAlignment() {
  const GgufValue* value = result_.metadata.Find("general.alignment");
  if (value == nullptr) return absl::OkStatus();
  const uint64_t* alignment = std::get_if<uint64_t>(value);
  if (alignment == nullptr || *alignment < 8 || *alignment > kMaxAlignment ||
      !std::has_single_bit(*alignment)) {
    return Error(
        absl::StrCat("general.alignment must be a power of two from 8 to ", kMaxAlignment));
  }
  alignment_ = *alignment;
  return absl::OkStatus();
}

absl::Status GgufReader::ReadTensor() {
  std::string_view name;
  uint32_t dimensions = 0, type = 0;
  if (!reader_.ReadString(name) || name.empty() || name.size() > kMaxTensorNameBytes) {
    return Error("bad length of a tensor's name");
  }
  if (!names_.insert(name).second) return TensorError(name, "it stands twice");
  if (!reader_.Read(dimensions) || dimensions > kMaxDimensions) {
    return TensorError(name, "bad number of dimensions");
  }
  TensorView tensor;
  tensor.name = name;
  uint64_t values = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    uint64_t extent = 0;
    if (!reader_.Read(extent) || extent > INT64_MAX ||
        __builtin_mul_overflow(values, extent, &values) || values > INT64_MAX) {
      return TensorError(name, "its dimensions are negative or overflow");
    }
    tensor.shape.push_back(extent);
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());  // GGUF has the innermost first

  Placement placement;
  if (!reader_.Read(type) || !reader_.Read(placement.offset)) {
    return Error("the file ends inside the list of tensors");
  }
  if (type >= std::size(kGgmlTypes) || kGgmlTypes[type].name == nullptr) {
    return TensorError(name, absl::StrCat("tensor type ", type, " does not exist"));
  }
  const GgmlType& known = kGgmlTypes[type];
  tensor.type = known.type;
  tensor.type_name = known.name;
  const uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % known.block.values != 0) {
    return TensorError(
        name, absl::StrCat("rows of ", row, " values are not whole blocks of ", known.name));
  }
  if (__builtin_mul_overflow(values / known.block.values, uint64_t{known.block.bytes},
                             &placement.bytes)) {
    return TensorError(name, "its size overflows");
  }
  result_.tensors.push_back(std::move(tensor));
  placements_.push_back(placement);
  return absl::OkStatus();
}

absl::Status GgufReader::PlaceTensors() {
  if (result_.tensors.empty()) return absl::OkStatus();
  uint64_t data_begin = 0, expected = 0;
  if (!AlignUp(reader_.offset(), alignment_, data_begin) || data_begin > file_.bytes.size()) {
    return Error("the file ends before the tensors' data");
  }
  const auto data = file_.bytes.subspan(data_begin);
  for (size_t i = 0; i < placements_.size(); ++i) {
    TensorView& tensor = result_.tensors[i];
    const auto [offset, bytes] = placements_[i];
    if (offset != expected) {
      return TensorError(tensor.name, absl::StrCat("its data begin at ", offset, ", not at ",
                                                   expected, " behind the one before"));
    }
    if (offset > data.size() || bytes > data.size() - offset) {
      return TensorError(
          tensor.name, absl::StrCat("its ", bytes, " bytes at ", offset, " reach beyond the file"));
    }
    tensor.data = data.subspan(offset, bytes);
    if (!AlignUp(offset + bytes, alignment_, expected)) {
      return TensorError(tensor.name, "its end overflows");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufFile> ReadGguf(const File& file) { return GgufReader(file).Run(); }

}  // namespace baton::checkpoint
