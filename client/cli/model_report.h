// SPDX-License-Identifier: Apache-2.0
// A checkpoint described for people and programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace baton::cli {

struct ModelReport {
  struct Tensor {
    std::string name, type;
    std::vector<uint64_t> shape;
    uint64_t values = 0, bytes = 0;
  };
  struct Tokenizer {
    bool present = false;
    std::string kind;
    uint32_t size = 0;
    std::vector<TokenId> prefix, end_tokens;
  };

  std::string format, fingerprint, prompt_format, default_system;
  uint64_t file_bytes = 0, parameters = 0;
  checkpoint::ModelConfig config;
  std::vector<Tensor> tensors;
  Tokenizer tokenizer;
  // Why the checkpoint cannot be served as it is; empty when it can.
  std::vector<std::string> problems;
};

ModelReport MakeModelReport(const checkpoint::Checkpoint& checkpoint);

// Both end with a line break. Tensors are summed up by type; `all` lists each.
std::string ReportToText(const ModelReport& report, bool all);
std::string ReportToJson(const ModelReport& report, bool all);

}  // namespace baton::cli
