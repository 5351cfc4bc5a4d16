// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/torch_file.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/pickle.h"
#include "common/checkpoint/zip.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";

struct StorageType {
  std::string_view global;
  TensorType type;
  const char* name;
  uint32_t bytes;
};
constexpr StorageType kStorageTypes[] = {{"torch.FloatStorage", TensorType::kF32, "F32", 4},
                                         {"torch.HalfStorage", TensorType::kF16, "F16", 2},
                                         {"torch.BFloat16Storage", TensorType::kBf16, "BF16", 2},
                                         {"torch.CharStorage", TensorType::kOther, "I8", 1},
                                         {"torch.ByteStorage", TensorType::kOther, "U8", 1},
                                         {"torch.BoolStorage", TensorType::kOther, "BOOL", 1},
                                         {"torch.ShortStorage", TensorType::kOther, "I16", 2},
                                         {"torch.IntStorage", TensorType::kOther, "I32", 4},
                                         {"torch.LongStorage", TensorType::kOther, "I64", 8},
                                         {"torch.DoubleStorage", TensorType::kOther, "F64", 8}};

std::vector<std::string_view> AllowedGlobals() {
  std::vector<std::string_view> globals = {kRebuildTensor, kRebuildParameter};
  for (const StorageType& type : kStorageTypes) globals.push_back(type.global);
  return globals;
}

const StorageType* FindStorageType(std::string_view global) {
  for (const StorageType& type : kStorageTypes) {
    if (type.global == global) return &type;
  }
  return nullptr;
}

struct Storage {
  const StorageType* type = nullptr;
  uint64_t count = 0;
  std::span<const std::byte> data;
};

// Reads a state dict; errors say nothing of the file.
class StateDictReader {
 public:
  // Both must outlive the reader.
  StateDictReader(const Pickle& pickle, std::string prefix, const std::vector<ZipEntry>& entries)
      : pickle_(pickle), prefix_(std::move(prefix)) {
    for (const ZipEntry& entry : entries) entries_.emplace(entry.name, entry.data);
  }

  absl::StatusOr<std::vector<TensorView>> Run() {
    const PickleNode& root = pickle_.at(pickle_.root);
    if (root.kind != PickleKind::kDict) {
      return absl::InvalidArgumentError("the pickle is no dict of tensors");
    }
    std::vector<TensorView> tensors;
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < root.items.size(); i += 2) {
      const PickleNode& key = pickle_.at(root.items[i]);
      if (key.kind != PickleKind::kText || key.text.empty() || key.text.size() > kMaxNameBytes) {
        return absl::InvalidArgumentError("a key of the dict is no name of a tensor");
      }
      auto tensor = names.insert(key.text).second ? ReadTensor(pickle_.at(root.items[i + 1]))
                                                  : absl::InvalidArgumentError("it stands twice");
      if (!tensor.ok()) {
        return absl::Status(tensor.status().code(),
                            absl::StrCat("tensor \"", std::string(key.text),
                                         "\": ", std::string(tensor.status().message())));
      }
      tensor->name = std::string(key.text);
      tensors.push_back(*std::move(tensor));
    }
    return tensors;
  }

 private:
  static constexpr size_t kMaxNameBytes = 1024;
  static constexpr size_t kMaxDimensions = 8;

  // The arguments when `node` is a call of `callee` with at least `count`; else null.
  const std::vector<uint32_t>* CallOf(const PickleNode& node, std::string_view callee,
                                      size_t count) const {
    if (node.kind != PickleKind::kCall || pickle_.at(node.items[0]).text != callee) return nullptr;
    const std::vector<uint32_t>& arguments = pickle_.at(node.items[1]).items;
    return arguments.size() >= count ? &arguments : nullptr;
  }
  // False unless `node` is a whole number from 0 on.
  static bool Whole(const PickleNode& node, uint64_t* value) {
    *value = static_cast<uint64_t>(node.number);
    return node.kind == PickleKind::kInt && node.number >= 0;
  }
  bool WholeTuple(const PickleNode& node, std::vector<uint64_t>* values) const {
    if (node.kind != PickleKind::kTuple || node.items.size() > kMaxDimensions) return false;
    for (const uint32_t item : node.items) {
      if (!Whole(pickle_.at(item), &values->emplace_back())) return false;
    }
    return true;
  }

  absl::StatusOr<TensorView> ReadTensor(const PickleNode& node) const;
  absl::StatusOr<Storage> ReadStorage(const PickleNode& node) const;

  const Pickle& pickle_;
  const std::string prefix_;
  std::unordered_map<std::string_view, std::span<const std::byte>> entries_;
};

// Row-major without gaps. Strides of extents of 1, and of empty tensors, say
// nothing. REQUIRES: equal sizes, a product of the shape that does not overflow.
bool IsContiguous(const std::vector<uint64_t>& shape, const std::vector<uint64_t>& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  uint64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
    if (shape[i] != 1 && strides[i] != stride) return false;
  }
  return true;
}

// A persistent id: ("storage", type, key, location, count).
absl::StatusOr<Storage> StateDictReader::ReadStorage(const PickleNode& node) const {
  const auto error = [](std::string_view what) {
    return absl::InvalidArgumentError(std::string(what));
  };
  if (node.kind != PickleKind::kPersistent) return error("it has no storage");
  const PickleNode& id = pickle_.at(node.items[0]);
  if (id.kind != PickleKind::kTuple || id.items.size() != 5 ||
      pickle_.at(id.items[0]).text != "storage" ||
      pickle_.at(id.items[1]).kind != PickleKind::kGlobal ||
      pickle_.at(id.items[2]).kind != PickleKind::kText) {
    return error("the id of its storage is not as torch.save writes it");
  }
  Storage storage;
  storage.type = FindStorageType(pickle_.at(id.items[1]).text);
  uint64_t bytes = 0;
  if (storage.type == nullptr || !Whole(pickle_.at(id.items[4]), &storage.count) ||
      __builtin_mul_overflow(storage.count, uint64_t{storage.type->bytes}, &bytes)) {
    return error("type or size of its storage is not as torch.save writes it");
  }
  const std::string name =
      absl::StrCat(prefix_, "/data/", std::string(pickle_.at(id.items[2]).text));
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return error(absl::StrCat("there is no entry \"", name, "\" with its numbers"));
  }
  storage.data = entry->second;
  if (storage.data.size() != bytes) {
    return error(absl::StrCat("entry \"", name, "\" holds ", storage.data.size(), " bytes, not ",
                              bytes, " as the pickle says"));
  }
  return storage;
}

// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), or
// _rebuild_parameter(that, requires_grad, hooks).
absl::StatusOr<TensorView> StateDictReader::ReadTensor(const PickleNode& node) const {
  const auto error = [](std::string_view what) {
    return absl::InvalidArgumentError(std::string(what));
  };
  const auto* parameter = CallOf(node, kRebuildParameter, 1);
  const PickleNode& plain = parameter == nullptr ? node : pickle_.at((*parameter)[0]);
  const auto* arguments = CallOf(plain, kRebuildTensor, 6);
  if (arguments == nullptr) return error("it is no tensor");
  if (arguments->size() > 6) return error("a tensor with metadata of its own");
  BATON_ASSIGN_OR_RETURN(const Storage storage, ReadStorage(pickle_.at((*arguments)[0])));

  TensorView tensor;
  uint64_t offset = 0;
  std::vector<uint64_t> strides;
  if (!Whole(pickle_.at((*arguments)[1]), &offset) ||
      !WholeTuple(pickle_.at((*arguments)[2]), &tensor.shape) ||
      !WholeTuple(pickle_.at((*arguments)[3]), &strides) || strides.size() != tensor.shape.size()) {
    return error("its offset, shape or strides are not as torch.save writes them");
  }
  uint64_t count = 1;
  for (const uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(count, extent, &count)) return error("its size overflows");
  }
  if (!IsContiguous(tensor.shape, strides)) {
    return error("its strides are not those of a contiguous row-major tensor");
  }
  if (offset > storage.count || count > storage.count - offset) {
    return error(absl::StrCat("its ", count, " values at ", offset, " reach beyond the ",
                              storage.count, " of its storage"));
  }
  tensor.type = storage.type->type;
  tensor.type_name = storage.type->name;
  tensor.data = storage.data.subspan(offset * storage.type->bytes, count * storage.type->bytes);
  return tensor;
}

absl::StatusOr<std::vector<TensorView>> ReadEntries(const std::vector<ZipEntry>& entries) {
  constexpr std::string_view kPickle = "/data.pkl";
  const ZipEntry* pickle_entry = nullptr;
  for (const ZipEntry& entry : entries) {
    if (!entry.name.ends_with(kPickle)) continue;
    if (pickle_entry != nullptr) return absl::InvalidArgumentError("two entries named data.pkl");
    pickle_entry = &entry;
  }
  if (pickle_entry == nullptr) {
    return absl::InvalidArgumentError("a zip container without data.pkl: not of torch.save");
  }
  std::string prefix(pickle_entry->name.substr(0, pickle_entry->name.size() - kPickle.size()));
  for (const ZipEntry& entry : entries) {
    if (entry.name != prefix + "/byteorder") continue;
    if (std::string_view(reinterpret_cast<const char*>(entry.data.data()), entry.data.size()) !=
        "little") {
      return absl::UnimplementedError("numbers that are not little-endian are not supported");
    }
  }
  const std::vector<std::string_view> globals = AllowedGlobals();
  BATON_ASSIGN_OR_RETURN(const Pickle pickle, ReadPickle(pickle_entry->data, globals));
  return StateDictReader(pickle, std::move(prefix), entries).Run();
}

}  // namespace

absl::StatusOr<std::vector<TensorView>> ReadTorchFile(const File& file) {
  if (file.text().starts_with('\x80')) {
    return absl::UnimplementedError(absl::StrCat(
        file.name, ": a checkpoint in PyTorch's format before 1.6; load and save it again there"));
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<ZipEntry> entries, ReadStoredZip(file));
  auto tensors = ReadEntries(entries);
  if (tensors.ok()) return tensors;
  return absl::Status(tensors.status().code(),
                      absl::StrCat(file.name, ": ", std::string(tensors.status().message())));
}

}  // namespace baton::checkpoint
