// SPDX-License-Identifier: Apache-2.0
// The admin service over a real connection.
#include "common/worker/admin_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "common/model/fake/fake_model.h"
#include "common/rpc/server.h"

namespace baton::worker {
namespace {

class NoListener final : public engine::Listener {
  void OnStep(const engine::StepOutput&) override {}
};

class AdminServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = rpc::Server::Start({}, {{"baton.v1.Admin", &service_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Admin::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  void StartEngine(const model::FakeOptions& fake = {}) {
    auto model = model::MakeFakeModel(fake);
    ASSERT_TRUE(model.ok());
    auto engine =
        engine::Engine::Create(*std::move(model), {.kv_blocks = 100}, &listener_, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    service_.Watch(engine_.get());
  }

  grpc::Status Ask(v1::KvDump* dump) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return stub_->GetKvDump(&context, {}, dump);
  }

  NoListener listener_;
  AdminService service_{"decode-7", "decode"};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(AdminServiceTest, TellsWhoHoldsWhichBlock) {
  StartEngine({.delay_per_step = absl::Milliseconds(1)});
  engine::SequenceSpec spec;
  spec.ref = {1, 42};
  spec.request_id = "r-1";
  spec.tenant = "t";
  spec.prompt.assign(70, 5);
  spec.max_tokens = 2000;
  engine_->Submit(spec);
  v1::KvDump dump;
  const absl::Time patience = absl::Now() + absl::Seconds(20);
  do {
    ASSERT_TRUE(Ask(&dump).ok());
    ASSERT_LT(absl::Now(), patience);
  } while (dump.owners_size() == 0 || dump.owners(0).state() != "decoding");
  EXPECT_EQ(dump.worker_id(), "decode-7");
  EXPECT_EQ(dump.role(), "decode");
  EXPECT_EQ(dump.blocks_total(), 100u);
  ASSERT_EQ(dump.owners_size(), 1);
  EXPECT_EQ(dump.owners(0).request_id(), "r-1");
  EXPECT_EQ(dump.owners(0).tenant(), "t");
  EXPECT_EQ(dump.owners(0).sequence_key(), 42u);
  EXPECT_EQ(dump.owners(0).prompt_tokens(), 70u);
  EXPECT_GE(dump.owners(0).blocks(), 3u);
  uint32_t covered = 0;
  for (const v1::KvRun& run : dump.runs()) {
    EXPECT_EQ(run.first(), covered);
    covered += run.count();
    if (run.requests() > 0) {
      EXPECT_EQ(run.owners(0), 0u);
    }
  }
  EXPECT_EQ(covered, 100u);
}

TEST_F(AdminServiceTest, IsUnavailableWithoutAnEngine) {
  v1::KvDump dump;
  EXPECT_EQ(Ask(&dump).error_code(), grpc::StatusCode::UNAVAILABLE);
  StartEngine();
  EXPECT_TRUE(Ask(&dump).ok());
  service_.StopWatching();
  EXPECT_EQ(Ask(&dump).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// Calls that meet the end of the engine, and too many at once, end with a status:
// the server's own end waits for all of them.
TEST_F(AdminServiceTest, EveryCallEndsWhenTheEngineGoes) {
  StartEngine({.delay_per_step = absl::Milliseconds(20)});
  engine::SequenceSpec spec;
  spec.ref = {1, 1};
  spec.prompt.assign(70, 5);
  spec.max_tokens = 2000;
  engine_->Submit(spec);
  std::atomic<int> good{0}, refused{0}, other{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      for (v1::KvDump dump;;) {
        const grpc::StatusCode code = Ask(&dump).error_code();
        if (code == grpc::StatusCode::UNAVAILABLE) return;
        ++(code == grpc::StatusCode::OK                   ? good
           : code == grpc::StatusCode::RESOURCE_EXHAUSTED ? refused
                                                          : other);
      }
    });
  }
  while (good < 10 || refused == 0) std::this_thread::yield();
  service_.StopWatching();
  engine_.reset();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(other, 0);
  server_->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace baton::worker
