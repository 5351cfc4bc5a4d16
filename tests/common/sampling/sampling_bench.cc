// SPDX-License-Identifier: Apache-2.0
// Time per token of SampleToken, by vocabulary, shape of the logits and
// settings: median and best of many calls on rows that change from call to
// call, in microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "common/sampling/sampler.h"

namespace {

using baton::TokenId;
using baton::sampling::Params;
using Rows = std::vector<std::vector<float>>;

constexpr int kCalls = 60;
constexpr size_t kRows = 4;

Rows MakeRows(const std::string& shape, size_t size) {
  std::mt19937 random(7);
  const float deviation = shape == "flat" ? 0.05f : shape == "peaked" ? 6.0f : 2.0f;
  std::normal_distribution<float> normal(0, deviation);
  Rows rows(kRows, std::vector<float>(size, 1.0f));
  if (shape == "equal") return rows;
  for (std::vector<float>& row : rows) {
    for (float& logit : row) logit = normal(random);
    if (shape == "peaked") row[random() % size] = 40;
  }
  return rows;
}

void Measure(const std::string& name, const Rows& rows, const Params& params) {
  std::vector<TokenId> tokens(2000);
  std::mt19937 random(8);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % rows[0].size());
  baton::sampling::TokenHistory history;
  history.Update(tokens, 1000);
  std::vector<double> times;
  for (uint32_t i = 0; i < kCalls; ++i) {
    const std::vector<float>& row = rows[i % rows.size()];
    const baton::sampling::Position position{
        .tokens = tokens, .output_index = 1000 + i, .history = &history};
    const auto start = std::chrono::steady_clock::now();
    const auto sample = SampleToken(row, static_cast<uint32_t>(row.size()), position, params);
    const auto end = std::chrono::steady_clock::now();
    if (!sample.ok()) std::abort();
    times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("    %-34s %7.1f %7.1f\n", name.c_str(), times[times.size() / 2], times[0]);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {65024, 151936};
  const std::vector<std::pair<std::string, Params>> settings = {
      {"greedy", {}},
      {"temperature", {.temperature = 0.8f}},
      {"chatglm2 (top-p 0.8)", {.temperature = 0.8f, .top_p = 0.8f}},
      {"top-p 0.95", {.temperature = 1, .top_p = 0.95f}},
      {"top-k 40, top-p 0.95", {.temperature = 1, .top_k = 40, .top_p = 0.95f}},
      {"top-k 20000", {.temperature = 1, .top_k = 20000}},
      {"min-p 0.05", {.temperature = 1, .min_p = 0.05f}},
      {"typical 0.95", {.temperature = 1, .typical_p = 0.95f}},
      {"top-p 0.95, penalties",
       {.temperature = 1, .top_p = 0.95f, .repetition_penalty = 1.1f, .presence_penalty = 0.5f}},
      {"all, top-k 40",
       {.temperature = 1,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.01f,
        .typical_p = 0.95f,
        .repetition_penalty = 1.1f,
        .presence_penalty = 0.5f,
        .frequency_penalty = 0.5f}},
      {"all, top-k off",
       {.temperature = 1,
        .top_p = 0.95f,
        .min_p = 0.0001f,
        .typical_p = 0.95f,
        .repetition_penalty = 1.1f,
        .presence_penalty = 0.5f,
        .frequency_penalty = 0.5f}},
      {"greedy, 5 log-probabilities", {.logprobs = 5}},
  };
  std::printf("%s\n", baton::sampling::BestRowPasses().isa);
  for (size_t size : sizes) {
    for (const char* shape : {"equal", "flat", "middle", "peaked"}) {
      std::printf("  vocabulary %zu, %s: median and best, us\n", size, shape);
      const Rows rows = MakeRows(shape, size);
      for (const auto& [name, params] : settings) Measure(name, rows, params);
    }
  }
}
