// SPDX-License-Identifier: Apache-2.0
#include "client/cli/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

namespace baton::cli {
namespace {

using Json = nlohmann::json;

Result Echo(const Request& request) {
  Result result;
  result.text = request.prompt;
  result.finish_reason = "stop";
  return result;
}

std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Lets a number of calls in only when all of them have come.
class Barrier {
 public:
  explicit Barrier(int count) : missing_(count) {}
  bool Wait() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) all_.notify_all();
    return all_.wait_for(lock, std::chrono::seconds(10), [&] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  int missing_;
};

TEST(Batch, WritesAnswersInInputOrderWhateverFinishesFirst) {
  std::istringstream input("{\"prompt\":\"a\"}\n\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}");
  std::ostringstream output;
  std::promise<void> last_done;
  Batch batch(
      {},
      [&](const Request& request, const auto&) {
        if (request.prompt == "a") last_done.get_future().wait_for(std::chrono::seconds(10));
        if (request.prompt == "c") last_done.set_value();
        return Echo(request);
      },
      &input, &output);
  EXPECT_EQ(batch.Run(3), 0u);
  const std::vector<Json> lines = Lines(output.str());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["text"], "a");
  EXPECT_EQ(lines[1]["text"], "b");
  EXPECT_EQ(lines[2]["text"], "c");
}

TEST(Batch, RunsAsManyAtOnceAsAskedFor) {
  std::istringstream input("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\"}\n");
  std::ostringstream output;
  Barrier barrier(3);
  std::atomic<int> met{0};
  Batch batch(
      {},
      [&](const Request& request, const auto&) {
        met += barrier.Wait() ? 1 : 0;
        return Echo(request);
      },
      &input, &output);
  batch.Run(3);
  EXPECT_EQ(met, 3);
}

TEST(Batch, BadLineFailsAloneWithItsNumberAndKey) {
  std::istringstream input("{\"prompt\":\"a\"}\n\n{\"promt\":\"b\"}\n{\"prompt\":\"c\"}\n");
  std::ostringstream output;
  Batch batch(
      {}, [](const Request& request, const auto&) { return Echo(request); }, &input, &output);
  EXPECT_EQ(batch.Run(2), 1u);
  const std::vector<Json> lines = Lines(output.str());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["text"], "a");
  EXPECT_EQ(lines[1]["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(lines[1]["error"]["message"],
            "line 3: unknown key \"promt\"; did you mean \"prompt\"?");
  EXPECT_EQ(lines[2]["text"], "c");
}

TEST(Batch, DefaultsFillWhatALineLeavesOut) {
  std::istringstream input("{\"prompt\":\"a\"}\n{\"prompt\":\"b\",\"max_tokens\":9}\n");
  std::ostringstream output;
  Request defaults;
  defaults.max_tokens = 3;
  std::vector<uint32_t> seen;
  Batch batch(
      defaults,
      [&](const Request& request, const auto&) {
        seen.push_back(*request.max_tokens);
        return Echo(request);
      },
      &input, &output);
  batch.Run(1);
  EXPECT_THAT(seen, ::testing::ElementsAre(3, 9));
}

TEST(Batch, CancelStartsNothingMore) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "{\"prompt\":\"a\"}\n";
  std::istringstream input(text);
  std::ostringstream output;
  std::atomic<int> calls{0};
  Batch* running = nullptr;
  Batch batch(
      {},
      [&](const Request& request, const auto&) {
        if (++calls == 3) running->Cancel();
        return Echo(request);
      },
      &input, &output);
  running = &batch;
  batch.Run(1);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(Lines(output.str()).size(), 3u);
}

TEST(Batch, AnswersWaitingForAnEarlierOneAreBounded) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "{\"prompt\":\"" + std::to_string(i) + "\"}\n";
  std::istringstream input(text);
  std::ostringstream output;
  std::mutex mutex;
  std::condition_variable changed;
  int ahead = 0;  // answered while the first one was not
  constexpr int kMost = 2 * static_cast<int>(Batch::kWindow) - 1;
  Batch batch(
      {},
      [&](const Request& request, const auto&) {
        std::unique_lock lock(mutex);
        if (request.prompt == "0") {
          changed.wait_for(lock, std::chrono::seconds(10), [&] { return ahead >= kMost; });
          // Whoever ran past the bound would get here in the meantime.
          changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return ahead > kMost; });
          EXPECT_EQ(ahead, kMost);
        } else {
          ++ahead;
          changed.notify_all();
        }
        return Echo(request);
      },
      &input, &output);
  EXPECT_EQ(batch.Run(2), 0u);
  EXPECT_EQ(Lines(output.str()).size(), 200u);
}

}  // namespace
}  // namespace baton::cli
