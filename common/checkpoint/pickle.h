// SPDX-License-Identifier: Apache-2.0
// Python's pickles (protocols 2 to 5, pickletools.py) read as data: nothing in
// them is ever looked up, called or built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::checkpoint {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,  // its value is not kept
  kText,
  kTuple,
  kList,
  kDict,        // also an OrderedDict
  kGlobal,      // a class or function, by name
  kPersistent,  // what the reader of the file is to put in place of an id
  kCall,        // of a global, not made
};

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  int64_t number = 0;                // kBool, kInt
  std::string_view text = {};        // kText: UTF-8, in the bytes read; kGlobal: "module.name"
  std::vector<uint32_t> items = {};  // indices of nodes: of kTuple and kList the elements, of kDict
                                     // keys and values in turns, of kPersistent the id, of kCall
                                     // the callee and its tuple of arguments
};

// Nodes may be shared and form cycles: walk to a fixed depth.
struct Pickle {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;

  const PickleNode& at(uint32_t index) const { return nodes[index]; }
};

// Reads a pickle whose globals are all in `globals` ("module.name", which have
// to outlive the result) or collections.OrderedDict. An object's state (BUILD)
// is left out. INVALID_ARGUMENT with the offset; UNIMPLEMENTED with the name of
// a global or opcode that is not allowed, or a limit that was passed: 16 MiB,
// a million nodes.
absl::StatusOr<Pickle> ReadPickle(std::span<const std::byte> bytes,
                                  std::span<const std::string_view> globals);

}  // namespace baton::checkpoint
