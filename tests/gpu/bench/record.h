// SPDX-License-Identifier: Apache-2.0
// What gpu_bench writes: one JSON object per line, as soon as it is known, so
// that a run that is cut short keeps what it has. Fields: docs/gpu.md.
#pragma once

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace baton::gpu_bench {

class Records final {
 public:
  explicit Records(const std::string& path) : file_(path) {}
  bool ok() const { return file_.good(); }
  void Write(const nlohmann::json& record) { file_ << record.dump() << std::endl; }

 private:
  std::ofstream file_;
};

}  // namespace baton::gpu_bench
