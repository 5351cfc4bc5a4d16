// SPDX-License-Identifier: Apache-2.0
#include "tests/common/checkpoint/torch_files.h"

#include <algorithm>

#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

constexpr uint32_t kIn64 = 0xffffffff;
constexpr size_t kAlignment = 64;

uint16_t Half(size_t value) { return static_cast<uint16_t>(value); }
uint32_t Word(uint64_t value) { return static_cast<uint32_t>(value); }

std::string LocalHeader(const ZipFileEntry& entry, size_t padding) {
  const std::string& name = entry.local_name.empty() ? entry.name : entry.local_name;
  return Bytes<uint32_t>(0x04034b50) + Bytes<uint16_t>(0) + Bytes(entry.flags) +
         Bytes(entry.method) + std::string(16, '\0') + Bytes(Half(name.size())) +
         Bytes(Half(padding)) + name + std::string(padding, 'Z');
}

std::string CentralHeader(const ZipFileEntry& entry, uint64_t offset, bool zip64) {
  const auto size = entry.data.size() + static_cast<uint64_t>(entry.extra_size);
  const auto packed = entry.data.size() + static_cast<uint64_t>(entry.extra_packed);
  offset += static_cast<uint64_t>(entry.extra_offset);
  const std::string extra = !zip64 ? ""
                                   : Bytes<uint16_t>(1) + Bytes<uint16_t>(24) + Bytes(size) +
                                         Bytes(packed) + Bytes(offset);
  return Bytes<uint32_t>(0x02014b50) + Bytes<uint32_t>(0) + Bytes(entry.flags) +
         Bytes(entry.method) + std::string(8, '\0') + Bytes(zip64 ? kIn64 : Word(packed)) +
         Bytes(zip64 ? kIn64 : Word(size)) + Bytes(Half(entry.name.size())) +
         Bytes(Half(extra.size())) + std::string(10, '\0') + Bytes(zip64 ? kIn64 : Word(offset)) +
         entry.name + extra;
}

}  // namespace

std::string ZipBuilder::Build() const {
  std::string file, directory;
  for (const ZipFileEntry& entry : entries) {
    const size_t unpadded = file.size() + LocalHeader(entry, 0).size();
    directory += CentralHeader(entry, file.size(), zip64_entries);
    file += LocalHeader(entry, (kAlignment - unpadded % kAlignment) % kAlignment) + entry.data;
    file += "PK\x07\x08" + std::string(12, '\0');
  }
  const uint64_t begin = file.size() + static_cast<uint64_t>(extra_begin);
  const uint64_t bytes = directory.size() + static_cast<uint64_t>(extra_directory);
  const uint64_t count = entries.size() + static_cast<uint64_t>(extra_entries);
  file += directory + between;
  if (zip64_end) {
    const uint64_t end = file.size() + static_cast<uint64_t>(extra_locator);
    file += Bytes<uint32_t>(0x06064b50) + Bytes<uint64_t>(44) + std::string(12, '\0') +
            Bytes(count) + Bytes(count) + Bytes(bytes) + Bytes(begin);
    file += Bytes<uint32_t>(0x07064b50) + Bytes<uint32_t>(0) + Bytes(end) + Bytes<uint32_t>(1);
  }
  return file + Bytes<uint32_t>(0x06054b50) + Bytes<uint32_t>(0) + Bytes(Half(count)) +
         Bytes(Half(count)) + Bytes(zip64_end ? kIn64 : Word(bytes)) +
         Bytes(zip64_end ? kIn64 : Word(begin)) + Bytes(Half(comment.size())) + comment;
}

std::string PickleText(std::string_view text) {
  return "X" + Bytes(Word(text.size())) + std::string(text);
}
std::string PickleInt(int64_t value) { return "\x8a\x08" + Bytes(value); }
std::string PickleGlobal(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
std::string PickleTuple(const std::vector<std::string>& values) {
  std::string pickle = "(";
  for (const std::string& value : values) pickle += value;
  return pickle + "t";
}
std::string PickleInts(const std::vector<uint64_t>& values) {
  std::vector<std::string> ints;
  for (const uint64_t value : values) ints.push_back(PickleInt(static_cast<int64_t>(value)));
  return PickleTuple(ints);
}
std::string PickleCall(const std::string& global, const std::vector<std::string>& arguments) {
  return global + PickleTuple(arguments) + "R";
}
std::string PickleDict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string pickle = "}(";
  for (const auto& [name, value] : items) pickle += PickleText(name) + value;
  return pickle + "u";
}
std::string PickleOf(const std::string& value) { return "\x80\x02" + value + "."; }

std::string PickleTensor(const TorchTensor& tensor) {
  std::vector<uint64_t> strides = tensor.strides;
  if (strides.empty()) {
    uint64_t stride = 1;
    for (size_t i = tensor.shape.size(); i-- > 0; stride *= tensor.shape[i]) {
      strides.insert(strides.begin(), stride);
    }
  }
  const std::string storage =
      PickleTuple({PickleText("storage"), PickleGlobal("torch", tensor.type + "Storage"),
                   PickleText(tensor.key), PickleText("cpu"),
                   PickleInt(static_cast<int64_t>(tensor.count))}) +
      "Q";
  return PickleCall(
      PickleGlobal("torch._utils", "_rebuild_tensor_v2"),
      {storage, PickleInt(tensor.offset), PickleInts(tensor.shape), PickleInts(strides), "\x89",
       PickleCall(PickleGlobal("collections", "OrderedDict"), {})});
}

TorchBuilder& TorchBuilder::Tensor(std::string_view name, const std::string& type,
                                   const std::vector<uint64_t>& shape, std::string_view data) {
  uint64_t count = 1;
  for (const uint64_t extent : shape) count *= extent;
  const std::string key = std::to_string(storages_.size());
  items_.emplace_back(name, PickleTensor({type, key, count, shape}));
  storages_.push_back({.name = "model/data/" + key, .data = std::string(data)});
  return *this;
}

std::string TorchBuilder::Build() const {
  ZipBuilder zip;
  zip.entries = storages_;
  zip.entries.insert(zip.entries.begin(),
                     {.name = "model/data.pkl", .data = PickleOf(PickleDict(items_))});
  zip.entries.push_back({.name = "model/version", .data = "3\n"});
  return zip.Build();
}

std::string TorchFile(const std::string& pickle, const std::vector<std::string>& storages) {
  ZipBuilder zip;
  zip.entries.push_back({.name = "m/data.pkl", .data = pickle});
  for (size_t i = 0; i < storages.size(); ++i) {
    zip.entries.push_back({.name = "m/data/" + std::to_string(i), .data = storages[i]});
  }
  return zip.Build();
}

}  // namespace baton::checkpoint
