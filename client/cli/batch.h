// SPDX-License-Identifier: Apache-2.0
// Many requests at once, answered in the order they were read.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <mutex>
#include <ostream>
#include <string>

#include "client/baton/client.h"

namespace baton::cli {

// Reads JSON lines, runs up to `concurrency` at a time, and writes one JSON
// line each as soon as all earlier ones are written. Lines are read as they are
// needed; at most kWindow x concurrency answers wait for an earlier one.
class Batch final {
 public:
  using Send = std::function<Result(const Request&, const Client::CancelToken&)>;
  static constexpr uint64_t kWindow = 16;

  // `defaults` fills what a line leaves out. Streams must outlive the batch.
  Batch(Request defaults, Send send, std::istream* input, std::ostream* output);

  // Returns the number of failed lines. Empty lines are passed over.
  uint64_t Run(uint32_t concurrency);
  // Cancels what runs and starts nothing more; from any thread. Returns at once
  // even while a read of the input blocks.
  void Cancel();

 private:
  struct Line {
    uint64_t index = 0;   // among the lines that count
    uint64_t number = 0;  // in the file, from 1
    std::string text;
  };

  void Work(uint64_t window);
  bool NextLine(uint64_t window, Line* line);
  Result Answer(const Line& line);
  void Write(uint64_t index, const Result& result);

  const Request defaults_;
  const Send send_;
  std::istream* const input_;
  std::ostream* const output_;
  Client::CancelToken cancel_;
  std::atomic<bool> cancelled_{false};

  // Apart, so that answers are written while a read of the input blocks.
  // Taken in this order.
  std::mutex input_mutex_, output_mutex_;
  // Under input_mutex_.
  uint64_t read_ = 0;         // lines taken
  uint64_t line_number_ = 0;  // in the file
  // Under output_mutex_.
  std::condition_variable written_changed_;
  uint64_t written_ = 0;                     // answers written
  uint64_t failed_ = 0;                      // of them, failed
  std::map<uint64_t, std::string> waiting_;  // answers whose turn has not come, by index
};

}  // namespace baton::cli
