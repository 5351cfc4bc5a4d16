// SPDX-License-Identifier: Apache-2.0
#include "client/cli/batch.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "client/cli/request_json.h"
#include "client/cli/result_json.h"

namespace baton::cli {

Batch::Batch(Request defaults, Send send, std::istream* input, std::ostream* output)
    : defaults_(std::move(defaults)), send_(std::move(send)), input_(input), output_(output) {}

uint64_t Batch::Run(uint32_t concurrency) {
  concurrency = std::max(concurrency, 1u);
  std::vector<std::thread> workers;
  workers.reserve(concurrency);
  for (uint32_t i = 0; i < concurrency; ++i) {
    workers.emplace_back([this, concurrency] { Work(kWindow * concurrency); });
  }
  for (std::thread& worker : workers) worker.join();
  return failed_;
}

void Batch::Cancel() {
  // Whoever waits for written_ waits for requests that this ends.
  cancelled_ = true;
  cancel_.Cancel();
}

void Batch::Work(uint64_t window) {
  Line line;
  while (NextLine(window, &line)) Write(line.index, Answer(line));
}

bool Batch::NextLine(uint64_t window, Line* line) {
  const std::lock_guard reading(input_mutex_);
  {
    std::unique_lock lock(output_mutex_);
    written_changed_.wait(lock, [&] { return read_ < written_ + window; });
  }
  while (!cancelled_ && std::getline(*input_, line->text)) {
    ++line_number_;
    if (line->text.find_first_not_of(" \t\r") == std::string::npos) continue;
    line->index = read_++;
    line->number = line_number_;
    return true;
  }
  return false;
}

Result Batch::Answer(const Line& line) {
  Request request = defaults_;
  const absl::Status parsed = ApplyRequestJson(line.text, &request);
  if (parsed.ok()) return send_(request, cancel_);
  Result result;
  result.status.code = StatusCode::kInvalidArgument;
  result.status.message =
      "line " + std::to_string(line.number) + ": " + std::string(parsed.message());
  return result;
}

void Batch::Write(uint64_t index, const Result& result) {
  std::string json = ResultToJson(result);
  const std::lock_guard lock(output_mutex_);
  if (!result.status.ok()) ++failed_;
  waiting_.emplace(index, std::move(json));
  while (!waiting_.empty() && waiting_.begin()->first == written_) {
    *output_ << waiting_.begin()->second << '\n';
    waiting_.erase(waiting_.begin());
    ++written_;
  }
  output_->flush();
  written_changed_.notify_all();
}

}  // namespace baton::cli
