// SPDX-License-Identifier: Apache-2.0
// Time per token of SampleToken, by settings and shape of the logits, on rows
// that change from call to call: the best of many calls in microseconds, and
// the worst of the shapes. Then 16 sequences, one thread and two.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/sampling/float_bounds.h"
#include "common/sampling/sampler.h"

namespace {

using baton::TokenId;
using baton::sampling::Params;
using baton::sampling::Position;
using Clock = std::chrono::steady_clock;
using Rows = std::vector<std::vector<float>>;

constexpr int kCalls = 100;
constexpr size_t kRows = 4;
constexpr size_t kSequences = 16;
// A logit of the shape; `x` is normal.
struct Shape {
  const char* name;
  float (*logit)(float x, std::mt19937& random);
};
constexpr Shape kShapes[] = {
    {"flat", [](float x, std::mt19937&) { return x / 20; }},
    {"middle", [](float x, std::mt19937&) { return 2 * x; }},
    {"peaked", [](float x, std::mt19937&) { return 6 * x; }},  // and one leads by far
    {"model",  // falls with the logarithm of the rank
     [](float x, std::mt19937& random) {
       return 16 - 2.2f * std::log(static_cast<float>(1 + random() % 65024)) + x / 2;
     }},
    {"equal", [](float, std::mt19937&) { return 1.0f; }},
    {"nearly", [](float x, std::mt19937&) { return 1 + 2e-7f * x; }},  // a few floats apart
    {"two", [](float x, std::mt19937&) { return x > 0 ? 1.5f : 1.0f; }},
    {"far two", [](float x, std::mt19937&) { return x > 1 ? 4.0f : 1.0f; }},
    {"few", [](float x, std::mt19937&) { return std::round(2 * x) / 2; }},
    {"falling", [](float, std::mt19937& random) { return -0.001f * (random() % 65024); }},
    {"halves", [](float x, std::mt19937&) { return x > 0 ? 1.0f : x; }},  // half are equal
    {"banned",
     [](float x, std::mt19937& r) { return r() % 300 == 0 ? x : -baton::sampling::kFloatMax; }},
};

std::vector<float> MakeRow(const Shape& shape, size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> row(size);
  for (float& logit : row) logit = shape.logit(normal(random), random);
  if (std::string(shape.name) == "peaked") row[random() % size] = 40;
  return row;
}

Rows MakeRows(const Shape& shape, size_t size, size_t count) {
  Rows rows;
  for (uint32_t i = 0; i < count; ++i) rows.push_back(MakeRow(shape, size, 7 + i));
  return rows;
}

// A sequence of 1,000 prompt and 1,000 output tokens.
struct History {
  std::vector<TokenId> tokens = std::vector<TokenId>(2000);
  baton::sampling::TokenHistory counts;

  explicit History(size_t vocabulary) {
    std::mt19937 random(8);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocabulary);
    counts.Update(tokens, 1000);
  }
  Position At(uint32_t index) const {
    return {.tokens = tokens, .output_index = 1000 + index, .history = &counts};
  }
};

void Sample(const std::vector<float>& row, const Position& position, const Params& params) {
  if (!SampleToken(row, static_cast<uint32_t>(row.size()), position, params).ok()) std::abort();
}

double Microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

double Measure(const Rows& rows, const History& history, const Params& params) {
  double best = 1e9;
  for (uint32_t i = 0; i < kCalls; ++i) {
    const auto start = Clock::now();
    Sample(rows[i % rows.size()], history.At(i), params);
    best = std::min(best, Microseconds(Clock::now() - start));
  }
  return best;
}

// A step of 16 sequences, whose rows are taken by who is free.
double MeasureStep(const Rows& rows, const History& history, const Params& params, int threads) {
  std::atomic<int> round{0}, arrived{0};
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < kSequences; i = next++) {
      Sample(rows[i], history.At(static_cast<uint32_t>(i)), params);
    }
    ++arrived;
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) {
    helpers.emplace_back([&] {
      for (int seen = 0; seen < kCalls;) {
        if (round.load() == seen) continue;
        ++seen;
        work();
      }
    });
  }
  double best = 1e9;
  for (int i = 0; i < kCalls; ++i) {
    const auto start = Clock::now();
    next = 0;
    arrived = 0;
    ++round;
    work();
    while (arrived.load() < threads) {
    }
    best = std::min(best, Microseconds(Clock::now() - start));
  }
  for (std::thread& helper : helpers) helper.join();
  return best;
}

std::vector<std::pair<std::string, Params>> AllSettings() {
  Params everything{.temperature = 1,
                    .top_p = 0.95f,
                    .min_p = 0.0001f,
                    .typical_p = 0.95f,
                    .repetition_penalty = 1.1f,
                    .presence_penalty = 0.5f,
                    .frequency_penalty = 0.5f};
  Params narrow = everything;
  narrow.top_k = 40;
  return {
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
      {"every step, top-k 40", narrow},
      {"every step, top-k off", everything},
      {"greedy, 5 log-probabilities", {.logprobs = 5}}};
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 65024;
  const History history(size);
  std::printf("%s, vocabulary %zu; best, us\n%-30s", baton::sampling::BestRowPasses().isa, size,
              "");
  std::vector<Rows> shapes;
  for (const Shape& shape : kShapes) {
    std::printf("%8s", shape.name);
    shapes.push_back(MakeRows(shape, size, kRows));
  }
  std::printf("   worst\n");
  for (const auto& [name, params] : AllSettings()) {
    std::printf("%-30s", name.c_str());
    double worst = 0;
    for (const Rows& rows : shapes) {
      const double best = Measure(rows, history, params);
      worst = std::max(worst, best);
      std::printf("%8.1f", best);
    }
    std::printf("%8.1f\n", worst);
  }
  std::printf("%zu sequences, rows as of a model: one thread, two\n", kSequences);
  const Rows rows = MakeRows(kShapes[3], size, kSequences);
  for (const auto& [name, params] : AllSettings()) {
    std::printf("%-30s%8.1f%8.1f\n", name.c_str(), MeasureStep(rows, history, params, 1),
                MeasureStep(rows, history, params, 2));
  }
}
