// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/callback_threads.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/credentials.h"

namespace baton::rpc {
namespace {

// Everything that a call uses, the channel among it.
struct Call {
  std::shared_ptr<grpc::Channel> channel;
  grpc::ClientContext context;
  baton::v1::ListModelsRequest request;
  baton::v1::ListModelsResponse response;
};

// Found in the field: a worker that stopped crashed in gRPC, rarely.
TEST(CallbackThreads, OutliveChannelsThatGoInTheCallbackOfTheirLastCall) {
  KeepCallbackThreads();
  for (int round = 0; round < 20; ++round) {
    auto call = std::make_unique<Call>();
    call->channel = grpc::CreateCustomChannel("127.0.0.1:1", grpc::InsecureChannelCredentials(),
                                              DefaultChannelArguments());
    absl::Notification ended;
    Call* const running = call.release();
    baton::v1::Inference::NewStub(running->channel)
        ->async()
        ->ListModels(&running->context, &running->request, &running->response,
                     [running, &ended](const grpc::Status& status) {
                       EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
                       delete running;  // and with it the last of the channel
                       ended.Notify();
                     });
    ASSERT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(10))) << round;
  }
}

}  // namespace
}  // namespace baton::rpc
