// SPDX-License-Identifier: Apache-2.0
// Which of the requests that wait goes first, and what the answer says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/dispatcher.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

// One decode worker with room for one request of 9 tokens at a time.
class RouterAdmission : public ::testing::Test {
 protected:
  static constexpr LinkId kD = 2;

  void Start(const std::string& policy, std::map<std::string, double, std::less<>> weights = {}) {
    options_.policy.name = policy;
    options_.policy.tenant_weights = std::move(weights);
    core_ = std::make_unique<Dispatcher>(options_, &slot_, &metrics_);
    worker_ = std::make_shared<FakeLink>();
    core_->OpenLink(kD, worker_, now_);
    core_->OnMessage(kD, MakeHello("d", v1::WORKER_ROLE_DECODE, 1), now_);
  }

  std::shared_ptr<FakeClient> Submit(const std::string& id, const std::string& tenant = "",
                                     int32_t priority = 0, absl::Duration deadline = absl::Hours(1),
                                     size_t tokens = 9) {
    ValidatedRequest request;
    request.request_id = id;
    request.prompt.assign(tokens, 1);
    request.max_tokens = 1;
    request.path = v1::PATH_LOCAL;
    request.tenant = tenant;
    request.priority = priority;
    auto client = std::make_shared<FakeClient>();
    core_->Submit({++last_, request, model_, client, now_, now_ + deadline}, now_);
    return client;
  }

  // Says how fast the worker is: a millisecond per prompt token.
  void TellCosts() {
    v1::WorkerMessage message;
    v1::WorkerLoad* load = message.mutable_heartbeat()->mutable_load();
    *load = MakeHello("d", v1::WORKER_ROLE_DECODE, 1).hello().info().load();
    load->mutable_costs()->set_prompt_token(1e-3);
    core_->OnMessage(kD, message, now_);
  }

  // Ends what runs, one after the other; the ids in the order of their starts.
  std::vector<std::string> Order() {
    std::vector<std::string> ids;
    for (size_t i = 0; i < worker_->assigns.size(); ++i) {
      const v1::Assign assign = worker_->assigns[i];
      ids.push_back(assign.request_id());
      now_ += absl::Milliseconds(10);
      v1::WorkerMessage message;
      v1::SequenceTokens* tokens = message.mutable_step()->add_tokens();
      tokens->set_sequence_key(assign.sequence_key());
      tokens->add_token_ids('A');
      v1::SequenceEnd* end = message.mutable_step()->add_ends();
      end->set_sequence_key(assign.sequence_key());
      end->set_reason(v1::FINISH_REASON_LENGTH);
      end->mutable_scheduling()->set_preemptions(3);
      end->mutable_scheduling()->set_recomputed_tokens(40);
      core_->OnMessage(kD, message, now_);
    }
    return ids;
  }

  using Ids = std::vector<std::string>;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  DispatcherOptions options_;
  metrics::Metrics registry_;
  RouterMetrics metrics_{&registry_};
  std::shared_ptr<ServedModel> model_ = MakeIdsModel();
  ModelSlot slot_{model_};
  std::unique_ptr<Dispatcher> core_;
  std::shared_ptr<FakeLink> worker_;
  RequestKey last_ = 0;
};

TEST_F(RouterAdmission, FirstComeFirstServedIsTheDefault) {
  EXPECT_EQ(options_.policy.name, "fcfs");
  Start("fcfs");
  Submit("1");
  Submit("2", "", -4);
  Submit("3", "", 4);
  EXPECT_EQ(Order(), (Ids{"1", "2", "3"}));
}

TEST_F(RouterAdmission, HigherPriorityOvertakesInTheQueue) {
  Start("priority");
  Submit("runs");
  Submit("low", "", -1);
  Submit("high", "", 2);
  Submit("middle");
  EXPECT_EQ(Order(), (Ids{"runs", "high", "middle", "low"}));
}

TEST_F(RouterAdmission, TenantsTakeTurnsByWeight) {
  Start("fair", {{"gold", 2}});
  Submit("runs", "gold");
  for (const char* id : {"g1", "g2", "g3", "g4"}) Submit(id, "gold");
  for (const char* id : {"b1", "b2"}) Submit(id, "basic");
  const Ids order = Order();
  ASSERT_EQ(order.size(), 7u);
  const auto at = [&](const std::string& id) {
    return std::find(order.begin(), order.end(), id) - order.begin();
  };
  EXPECT_LE(at("b1"), 2);
  EXPECT_LE(at("b2"), 5);
  EXPECT_LT(at("g2"), at("b2"));
}

TEST_F(RouterAdmission, DeadlineThatCannotBeKeptIsRefusedBeforeItCosts) {
  Start("deadline");
  TellCosts();
  Submit("runs", "", 0, absl::Seconds(10));
  const auto late = Submit("late", "", 0, absl::Milliseconds(5));
  ASSERT_TRUE(late->ended());
  EXPECT_EQ(late->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late->status().message()), HasSubstr("the prompt needs 9ms"));
  const auto good = Submit("good", "", 0, absl::Seconds(1));
  EXPECT_FALSE(good->ended());
  EXPECT_EQ(Order(), (Ids{"runs", "good"}));
}

TEST_F(RouterAdmission, LedgerSaysWhatSchedulingDid) {
  Start("fcfs");
  const auto client = Submit("1");
  Order();
  ASSERT_EQ(client->finished.size(), 1u);
  EXPECT_EQ(client->finished[0].scheduling().preemptions(), 3u);
  EXPECT_EQ(client->finished[0].scheduling().recomputed_tokens(), 40u);
  EXPECT_EQ(client->finished[0].route().reason(), "requested");
}

}  // namespace
}  // namespace baton::router
