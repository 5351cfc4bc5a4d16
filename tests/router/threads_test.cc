// SPDX-License-Identifier: Apache-2.0
// The two places where threads meet: the task pool and the dispatcher's thread.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "router/clock.h"
#include "router/dispatcher_thread.h"
#include "router/task_pool.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

TEST(TaskPool, RefusesBeyondItsBoundAndRunsWhatWaitsBeforeItEnds) {
  std::atomic<int> ran{0};
  std::promise<void> started, go;
  {
    TaskPool pool(1, 2);
    ASSERT_TRUE(pool.TryPost([&] {
      started.set_value();
      go.get_future().wait();
    }));
    started.get_future().wait();
    EXPECT_TRUE(pool.TryPost([&] { ++ran; }));
    EXPECT_TRUE(pool.TryPost([&] { ++ran; }));
    EXPECT_FALSE(pool.TryPost([&] { ++ran; }));
    go.set_value();
  }
  EXPECT_EQ(ran, 2);
}

class DispatcherThreadTest : public ::testing::Test {
 protected:
  static Submission Make(RequestKey key, std::shared_ptr<ServedModel> model,
                         std::shared_ptr<FakeClient> client, absl::Duration deadline) {
    Submission submission;
    submission.key = key;
    submission.request.prompt = {1};
    submission.model = std::move(model);
    submission.out = std::move(client);
    submission.arrival = SteadyNow();
    submission.deadline = submission.arrival + deadline;
    return submission;
  }

  metrics::Metrics metrics_;
  RouterMetrics router_metrics_{&metrics_};
  std::shared_ptr<ServedModel> model_ = MakeTextModel();
  ModelSlot slot_{model_};
  DispatcherOptions options_;
};

TEST_F(DispatcherThreadTest, DeadlinePassesWithoutAnyTraffic) {
  options_.pair_wait = absl::Minutes(1);
  Dispatcher dispatcher(options_, &slot_, &router_metrics_);
  DispatcherThread thread(&dispatcher, [](bool) {});
  const auto client = std::make_shared<FakeClient>();
  const absl::Time start = SteadyNow();
  thread.Run([&](Dispatcher& core, absl::Time now) {
    core.Submit(Make(1, model_, client, absl::Milliseconds(50)), now);
  });
  EXPECT_FALSE(thread.WaitIdle(start + absl::Milliseconds(10)));
  EXPECT_TRUE(thread.WaitIdle(start + absl::Seconds(2)));
  thread.Run([&](Dispatcher&, absl::Time) {
    EXPECT_EQ(client->status().code(), absl::StatusCode::kDeadlineExceeded);
  });
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(50));
}

TEST_F(DispatcherThreadTest, TasksOfOneThreadRunInOrderAndNoneIsLost) {
  Dispatcher dispatcher(options_, &slot_, &router_metrics_);
  std::vector<std::vector<int>> seen(4);
  {
    DispatcherThread thread(&dispatcher, [](bool) {});
    std::vector<std::thread> posters;
    for (size_t poster = 0; poster < seen.size(); ++poster) {
      posters.emplace_back([&, poster] {
        for (int i = 0; i < 500; ++i) {
          thread.Post([&, poster, i](Dispatcher&, absl::Time) { seen[poster].push_back(i); });
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  for (const std::vector<int>& order : seen) {
    ASSERT_EQ(order.size(), 500u);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

TEST_F(DispatcherThreadTest, TellsWhenTheRouterBecomesReadyAndWhenNot) {
  Dispatcher dispatcher(options_, &slot_, &router_metrics_);
  std::vector<bool> changes;
  {
    DispatcherThread thread(&dispatcher, [&](bool ready) { changes.push_back(ready); });
    thread.Run([](Dispatcher& core, absl::Time now) {
      core.OpenLink(1, std::make_shared<FakeLink>(), now);
      core.OnMessage(1, MakeHello("d", v1::WORKER_ROLE_DECODE), now);
    });
    thread.Run([](Dispatcher& core, absl::Time) { core.Drain(); });
  }
  EXPECT_EQ(changes, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace baton::router
