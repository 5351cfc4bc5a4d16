// SPDX-License-Identifier: Apache-2.0
#include "router/stream_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton::router {
namespace {

// Stands for a protobuf message.
struct Text {
  std::string value;
  size_t ByteSizeLong() const { return value.size(); }
};

bool Append(Text& last, const Text& next) {
  if (next.value.starts_with('!')) return false;
  last.value += next.value;
  return true;
}

class FakeSink final : public StreamSink<Text> {
 public:
  void StartWrite(const Text& message) override {
    EXPECT_TRUE(finishes.empty()) << "a write after Finish";
    EXPECT_EQ(current, nullptr) << "two writes at once";
    current = &message;
    written.push_back(message.value);
  }
  void Finish(const absl::Status& status) override { finishes.push_back(status); }
  void Abort() override { ++aborts; }

  const Text* current = nullptr;  // must stay valid until the write is done
  std::vector<std::string> written;
  std::vector<absl::Status> finishes;
  int aborts = 0;
};

class StreamWriterTest : public ::testing::Test {
 protected:
  void WriteDone(bool ok = true) {
    EXPECT_EQ(sink_.current->value, sink_.written.back());
    sink_.current = nullptr;
    writer_.OnWriteDone(ok, now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  FakeSink sink_;
  StreamWriter<Text> writer_{
      &sink_, {.max_pending_bytes = 10, .max_stall = absl::Seconds(5)}, Append};
};

TEST_F(StreamWriterTest, WritesOneMessageAtATimeAndMergesWhatWaits) {
  writer_.Send({"a"}, now_);
  writer_.Send({"b"}, now_);
  writer_.Send({"c"}, now_);
  writer_.Send({"!d"}, now_);
  EXPECT_EQ(sink_.written, std::vector<std::string>{"a"});
  WriteDone();
  WriteDone();
  WriteDone();
  EXPECT_EQ(sink_.written, (std::vector<std::string>{"a", "bc", "!d"}));
}

TEST_F(StreamWriterTest, FinishComesOnceAndAfterWhatWaits) {
  writer_.Send({"a"}, now_);
  writer_.Send({"b"}, now_);
  writer_.Finish(absl::OkStatus(), now_);
  writer_.Finish(absl::InternalError("late"), now_);
  writer_.Send({"late"}, now_);
  EXPECT_TRUE(sink_.finishes.empty());
  WriteDone();
  EXPECT_TRUE(sink_.finishes.empty());
  WriteDone();
  EXPECT_EQ(sink_.finishes, std::vector<absl::Status>{absl::OkStatus()});
  EXPECT_EQ(sink_.written, (std::vector<std::string>{"a", "b"}));
}

TEST_F(StreamWriterTest, CancelFinishesAtOnceAndOnlyOnce) {
  writer_.Send({"a"}, now_);
  writer_.Send({"b"}, now_);
  writer_.OnCancel(now_);
  ASSERT_EQ(sink_.finishes.size(), 1u);
  EXPECT_EQ(sink_.finishes[0].code(), absl::StatusCode::kCancelled);
  WriteDone(false);
  writer_.Finish(absl::OkStatus(), now_);
  writer_.Send({"late"}, now_);
  EXPECT_EQ(sink_.finishes.size(), 1u);
  EXPECT_EQ(writer_.Check(now_).code(), absl::StatusCode::kCancelled);
}

TEST_F(StreamWriterTest, CancelAfterFinishKeepsTheStatus) {
  writer_.Send({"a"}, now_);
  writer_.Finish(absl::DataLossError("x"), now_);
  writer_.OnCancel(now_);
  EXPECT_EQ(sink_.finishes, std::vector<absl::Status>{absl::DataLossError("x")});
}

TEST_F(StreamWriterTest, ReaderThatLeavesTooMuchUnreadIsFoundAndEndedAtOnce) {
  writer_.Send({"a"}, now_);
  writer_.Send({"0123456789"}, now_);
  EXPECT_TRUE(writer_.Check(now_).ok());
  writer_.Send({"x"}, now_);
  const absl::Status status = writer_.Check(now_);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("11 bytes wait for it; the limit is 10"), std::string::npos)
      << status;
  writer_.Finish(status, now_);
  EXPECT_EQ(sink_.finishes, std::vector<absl::Status>{status});  // the write is still under way
}

TEST_F(StreamWriterTest, WriteThatTakesTooLongIsFound) {
  writer_.Send({"a"}, now_);
  EXPECT_TRUE(writer_.Check(now_ + absl::Seconds(5)).ok());
  EXPECT_EQ(writer_.Check(now_ + absl::Seconds(6)).code(), absl::StatusCode::kResourceExhausted);
  WriteDone();
  EXPECT_TRUE(writer_.Check(now_ + absl::Seconds(60)).ok());  // idle is no stall
}

TEST_F(StreamWriterTest, FinishedStreamOfAReaderThatStallsIsEndedThenAborted) {
  writer_.Send({"a"}, now_);
  writer_.Finish(absl::OkStatus(), now_);
  EXPECT_FALSE(writer_.Reap(now_ + absl::Seconds(5)));
  EXPECT_TRUE(sink_.finishes.empty());
  EXPECT_FALSE(writer_.Reap(now_ + absl::Seconds(6)));
  ASSERT_EQ(sink_.finishes.size(), 1u);
  EXPECT_EQ(sink_.finishes[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(writer_.Reap(now_ + absl::Seconds(11)));
  EXPECT_EQ(sink_.aborts, 0);
  EXPECT_TRUE(writer_.Reap(now_ + absl::Seconds(12)));
  EXPECT_EQ(sink_.aborts, 1);
}

TEST_F(StreamWriterTest, ReapIsDoneOnceTheSinkIs) {
  writer_.Finish(absl::OkStatus(), now_);
  EXPECT_FALSE(writer_.Reap(now_));
  writer_.OnDone();
  EXPECT_TRUE(writer_.Reap(now_));
  writer_.Send({"late"}, now_);
  writer_.OnCancel(now_);
  EXPECT_EQ(sink_.finishes.size(), 1u);
}

}  // namespace
}  // namespace baton::router
