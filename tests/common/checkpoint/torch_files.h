// SPDX-License-Identifier: Apache-2.0
// Zip containers, pickles and PyTorch checkpoints made in the test, good ones
// and others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::checkpoint {

struct ZipFileEntry {
  std::string name, data;
  uint16_t flags = 0x0808, method = 0;  // as PyTorch: sizes behind the data, names in UTF-8
  // Lies of the directory and of the local header.
  int64_t extra_size = 0, extra_packed = 0, extra_offset = 0;
  std::string local_name = {};  // when not empty
};

// Writes a zip container as PyTorch does. Every part can be replaced by a wrong
// one.
struct ZipBuilder {
  std::vector<ZipFileEntry> entries = {};
  bool zip64_entries = false;  // sizes and offsets in zip64 fields
  bool zip64_end = false;
  int64_t extra_entries = 0, extra_directory = 0, extra_begin = 0;  // lies of the end record
  int64_t extra_locator = 0;
  std::string between = {};  // the directory and its end record
  std::string comment = {};

  std::string Build() const;
};

// Parts of a pickle, each leaving one value on the stack.
std::string PickleText(std::string_view text);
std::string PickleInt(int64_t value);
std::string PickleGlobal(std::string_view module, std::string_view name);
std::string PickleTuple(const std::vector<std::string>& values);
std::string PickleInts(const std::vector<uint64_t>& values);  // a tuple
std::string PickleCall(const std::string& global, const std::vector<std::string>& arguments);
std::string PickleDict(const std::vector<std::pair<std::string, std::string>>& items);  // by name
// Protocol 2 around `value`.
std::string PickleOf(const std::string& value);

// A tensor of a state dict: type such as "Half", its storage's key and count.
struct TorchTensor {
  std::string type, key;
  uint64_t count = 0;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides = {};  // of a contiguous tensor when empty
  int64_t offset = 0;
};
std::string PickleTensor(const TorchTensor& tensor);

// The file torch.save would write for tensors with these bytes, each in a
// storage of its own.
class TorchBuilder {
 public:
  // `type`: "Half", "Float", "BFloat16", "Char", …
  TorchBuilder& Tensor(std::string_view name, const std::string& type,
                       const std::vector<uint64_t>& shape, std::string_view data);
  std::string Build() const;

 private:
  std::vector<std::pair<std::string, std::string>> items_;
  std::vector<ZipFileEntry> storages_;
};

// The file of this pickle and these storages, keys "0", "1", ….
std::string TorchFile(const std::string& pickle, const std::vector<std::string>& storages);

}  // namespace baton::checkpoint
