// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/json.h"

namespace baton::checkpoint {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;

struct Dtype {
  const char* name;
  TensorType type;
  uint32_t bytes;
};
constexpr Dtype kDtypes[] = {{"F32", TensorType::kF32, 4},      {"F16", TensorType::kF16, 2},
                             {"BF16", TensorType::kBf16, 2},    {"F64", TensorType::kOther, 8},
                             {"I64", TensorType::kOther, 8},    {"U64", TensorType::kOther, 8},
                             {"I32", TensorType::kOther, 4},    {"U32", TensorType::kOther, 4},
                             {"I16", TensorType::kOther, 2},    {"U16", TensorType::kOther, 2},
                             {"I8", TensorType::kOther, 1},     {"U8", TensorType::kOther, 1},
                             {"BOOL", TensorType::kOther, 1},   {"F8_E4M3", TensorType::kOther, 1},
                             {"F8_E5M2", TensorType::kOther, 1}};

const Dtype* FindDtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (name == dtype.name) return &dtype;
  }
  return nullptr;
}

struct HeaderEntry {
  TensorView tensor;
  uint64_t begin = 0, end = 0;  // in the data section
};

// Reads one entry of the header; the error says what is wrong with it.
absl::StatusOr<HeaderEntry> ReadEntry(const std::string& name, const Json& json) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\": ", std::string(what)));
  };
  if (!json.is_object()) return error("its entry is no object");
  const auto dtype_field = json.find("dtype"), shape = json.find("shape"),
             offsets = json.find("data_offsets");
  if (dtype_field == json.end() || !dtype_field->is_string()) return error("no dtype");
  if (shape == json.end() || !shape->is_array()) return error("no shape");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return error("data_offsets must be two whole numbers");
  }
  const auto& dtype_name = dtype_field->get_ref<const std::string&>();
  const Dtype* dtype = FindDtype(dtype_name);
  if (dtype == nullptr) return error(absl::StrCat("unknown dtype \"", dtype_name, "\""));

  HeaderEntry entry;
  entry.tensor.name = name;
  entry.tensor.type = dtype->type;
  entry.tensor.type_name = dtype_name;
  uint64_t bytes = dtype->bytes;
  for (const Json& dimension : *shape) {
    if (!dimension.is_number_unsigned()) return error("a dimension is no whole number");
    const auto extent = dimension.get<uint64_t>();
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return error("its size overflows");
    entry.tensor.shape.push_back(extent);
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  if (entry.end < entry.begin) return error("it ends before it begins");
  if (entry.end - entry.begin != bytes) {
    return error(absl::StrCat("shape and dtype need ", bytes, " bytes, data_offsets hold ",
                              entry.end - entry.begin));
  }
  return entry;
}

absl::Status CheckMetadata(const Json& metadata) {
  if (!metadata.is_object()) return absl::InvalidArgumentError("__metadata__ is no object");
  for (const Json& value : metadata) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError("a value of __metadata__ is no string");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorView>> ReadHeader(const File& file) {
  uint64_t header_bytes = 0;
  if (file.bytes.size() < kLengthBytes) {
    return absl::InvalidArgumentError("shorter than the header's length");
  }
  std::memcpy(&header_bytes, file.bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header of ", header_bytes, " bytes is over the limit of ", kMaxHeaderBytes));
  }
  if (header_bytes > file.bytes.size() - kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", header_bytes, " bytes in a file of ", file.bytes.size()));
  }
  BATON_ASSIGN_OR_RETURN(const Json header,
                         ParseJsonObject(file.text().substr(kLengthBytes, header_bytes), "header"));
  const auto data = file.bytes.subspan(kLengthBytes + header_bytes);

  std::vector<HeaderEntry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      BATON_RETURN_IF_ERROR(CheckMetadata(json));
      continue;
    }
    BATON_ASSIGN_OR_RETURN(entries.emplace_back(), ReadEntry(name, json));
  }
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });

  std::vector<TensorView> tensors;
  uint64_t end = 0;
  for (HeaderEntry& entry : entries) {
    if (entry.begin != end || entry.end > data.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", entry.tensor.name, "\": data [", entry.begin, ", ", entry.end,
          ") does not follow byte ", end, " inside the ", data.size(), " bytes there are"));
    }
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    end = entry.end;
    tensors.push_back(std::move(entry.tensor));
  }
  if (end != data.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensors end at byte ", end, " of ", data.size(), " bytes of data"));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<TensorView>> ReadSafetensors(const File& file) {
  auto tensors = ReadHeader(file);
  if (tensors.ok()) return tensors;
  return absl::InvalidArgumentError(
      absl::StrCat(file.name, ": ", std::string(tensors.status().message())));
}

}  // namespace baton::checkpoint
