// SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <sstream>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

// Plays lines; "^C" is an interrupt at the prompt.
class ScriptedLines final : public LineSource {
 public:
  explicit ScriptedLines(std::deque<std::string> lines) : lines_(std::move(lines)) {}

  Kind Read(std::string* line) override {
    if (interrupts_ > 0) {
      --interrupts_;
      return Kind::kInterrupted;
    }
    if (lines_.empty()) return Kind::kEnd;
    *line = lines_.front();
    lines_.pop_front();
    return *line == "^C" ? Kind::kInterrupted : Kind::kLine;
  }
  void Interrupt() override { ++interrupts_; }

  size_t left() const { return lines_.size(); }
  int interrupts() const { return interrupts_; }

 private:
  std::deque<std::string> lines_;
  int interrupts_ = 0;
};

// A session over scripted lines and a model that says "re: " and the message.
class ChatTest : public ::testing::Test {
 protected:
  void Talk(std::deque<std::string> lines, const std::string& system = "") {
    lines_ = std::make_unique<ScriptedLines>(std::move(lines));
    ChatSession::Options options;
    options.system = system;
    session_ = std::make_unique<ChatSession>(
        options,
        [this](const Request& request, const auto& on_tokens, const Client::CancelToken& cancel) {
          return Answer(request, on_tokens, cancel);
        },
        lines_.get(), &output_, &notes_);
    ok_ = session_->Run();
  }

  Result Answer(const Request& request, const std::function<bool(const TokenEvent&)>& on_tokens,
                const Client::CancelToken&) {
    requests_.push_back(request);
    Result result = next_;
    next_ = Result();
    if (result.text.empty() && result.status.ok()) {
      result.text = "re: " + request.messages.back().content;
    }
    TokenEvent event;
    event.text = result.text;
    on_tokens(event);
    if (interrupt_during_answer_) session_->Interrupt();
    return result;
  }

  static Result Failed(StatusCode code, const std::string& text) {
    Result result;
    result.status.code = code;
    result.status.message = "reason";
    result.text = text;
    return result;
  }

  std::vector<std::string> Sent(size_t request) const {
    std::vector<std::string> turns;
    for (const ChatTurn& turn : requests_[request].messages) {
      turns.push_back(turn.role + ":" + turn.content);
    }
    return turns;
  }

  std::unique_ptr<ScriptedLines> lines_;
  std::unique_ptr<ChatSession> session_;
  std::ostringstream output_, notes_;
  std::vector<Request> requests_;
  Result next_;
  bool interrupt_during_answer_ = false;
  bool ok_ = false;
};

TEST_F(ChatTest, SendsTheWholeConversationWithEachMessage) {
  Talk({"one", "", "two"}, "be brief");
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_THAT(Sent(1), ::testing::ElementsAre("system:be brief", "user:one", "assistant:re: one",
                                              "user:two"));
  EXPECT_EQ(output_.str(), "re: one\nre: two\n");
  EXPECT_TRUE(ok_);
}

TEST_F(ChatTest, ResetForgetsAllButTheSystemMessage) {
  Talk({"one", "/reset", "two"}, "be brief");
  EXPECT_THAT(Sent(1), ::testing::ElementsAre("system:be brief", "user:two"));
}

TEST_F(ChatTest, ExitLeavesAndUnknownCommandsAreNotSent) {
  Talk({"/hlep", "/exit", "never"});
  EXPECT_TRUE(requests_.empty());
  EXPECT_EQ(lines_->left(), 1u);
  EXPECT_THAT(notes_.str(), HasSubstr("There is no command /hlep"));
}

TEST_F(ChatTest, InterruptDuringAnAnswerStopsItAndNotTheSession) {
  interrupt_during_answer_ = true;
  next_ = Failed(StatusCode::kCancelled, "half");
  Talk({"one", "two"});
  // The interrupt went to the answer, not to the prompt.
  EXPECT_EQ(lines_->interrupts(), 0);
  EXPECT_THAT(notes_.str(), HasSubstr("[stopped]"));
  ASSERT_EQ(requests_.size(), 2u);
  // What was said before stays said.
  EXPECT_THAT(Sent(1), ::testing::ElementsAre("user:one", "assistant:half", "user:two"));
  EXPECT_TRUE(ok_);
}

TEST_F(ChatTest, SecondInterruptInARowAtThePromptEndsTheSession) {
  Talk({"^C", "^C", "never"});
  EXPECT_EQ(lines_->left(), 1u);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(ChatTest, InterruptsWithALineBetweenDoNotEndTheSession) {
  Talk({"^C", "one", "^C", "two"});
  EXPECT_EQ(requests_.size(), 2u);
}

TEST_F(ChatTest, FailedMessageIsTakenOutOfTheConversation) {
  next_ = Failed(StatusCode::kUnavailable, "");
  Talk({"one", "two"});
  EXPECT_THAT(notes_.str(), HasSubstr("UNAVAILABLE: reason"));
  EXPECT_THAT(Sent(1), ::testing::ElementsAre("user:two"));
  EXPECT_FALSE(ok_);
}

}  // namespace
}  // namespace baton::cli
