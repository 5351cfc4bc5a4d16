// SPDX-License-Identifier: Apache-2.0
#include "client/baton/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/client/scripted_router.h"
#include "tests/client/tcp_relay.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using testing::FinishedEvent;
using ::testing::Ge;
using ::testing::HasSubstr;
using testing::ScriptedRouter;
using testing::StartedEvent;
using testing::TcpRelay;
using testing::TokensEvent;

Request Prompt(const std::string& text) {
  Request request;
  request.prompt = text;
  return request;
}

// Holds the stream open until the client has gone; never longer than 10 s.
grpc::Status UntilCancelled(grpc::ServerContext* context) {
  const auto limit = steady_clock::now() + std::chrono::seconds(10);
  while (!context->IsCancelled() && steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(2));
  }
  return {grpc::StatusCode::CANCELLED, "the client left"};
}

grpc::Status AnswerHi(grpc::ServerContext*, ScriptedRouter::Writer* writer) {
  writer->Write(StartedEvent("r-1", 77));
  writer->Write(TokensEvent(0, {11}, "H"));
  writer->Write(TokensEvent(1, {12, 13}, "i!"));
  writer->Write(FinishedEvent(v1::FINISH_REASON_STOP));
  return grpc::Status::OK;
}

std::unique_ptr<Client> ConnectTo(const std::string& address) {
  return Client::Connect({.router = address, .tls_ca = {}, .tls_cert = {}, .tls_key = {}});
}

TEST(Client, StreamsEventsInOrderAndCollectsTheAnswer) {
  ScriptedRouter router(AnswerHi);
  std::vector<std::string> pieces;
  const Result result = ConnectTo(router.address())->Generate(Prompt("x"), [&](const auto& event) {
    pieces.push_back(event.text);
    return true;
  });
  ASSERT_TRUE(result.status.ok()) << result.status.message;
  EXPECT_THAT(pieces, ElementsAre("H", "i!"));
  EXPECT_EQ(result.text, "Hi!");
  EXPECT_THAT(result.token_ids, ElementsAre(11, 12, 13));
  EXPECT_EQ(result.request_id, "r-1");
  EXPECT_EQ(result.seed, 77u);
  EXPECT_EQ(result.finish_reason, "stop");
  EXPECT_EQ(result.prompt_tokens, 4u);
  EXPECT_EQ(result.cached_prompt_tokens, 1u);
  EXPECT_EQ(result.timing.transfer, 1.5);
  EXPECT_EQ(result.prefill_worker, "prefill-1");
  EXPECT_EQ(result.transport, "shm");
}

TEST(Client, MeasuresGapsBetweenTokensAsTheyArrive) {
  std::promise<void> first_arrived;
  ScriptedRouter router([&](grpc::ServerContext*, ScriptedRouter::Writer* writer) {
    writer->Write(TokensEvent(0, {11}, "H"));
    first_arrived.get_future().wait_for(std::chrono::seconds(10));
    std::this_thread::sleep_for(milliseconds(30));
    writer->Write(TokensEvent(1, {12, 13}, "i!"));
    writer->Write(FinishedEvent(v1::FINISH_REASON_STOP));
    return grpc::Status::OK;
  });
  const auto client = ConnectTo(router.address());
  const Result result = client->Generate(Prompt("x"), [&](const TokenEvent& event) {
    if (event.first_index == 0) first_arrived.set_value();
    return true;
  });
  // The second message came 30 ms later and brought two tokens at once.
  EXPECT_THAT(result.token_gaps_ms, ElementsAre(Ge(30.0), 0.0));
}

TEST(Client, SendsEveryFieldThatIsSetAndNoOther) {
  ScriptedRouter router(AnswerHi);
  Request request;
  request.prompt_ids = {3, 4};
  request.temperature = 0.5f;
  request.seed = 1ull << 63;
  request.max_tokens = 9;
  request.stop = {"a", "b"};
  request.stop_token_ids = {8};
  request.ignore_eos = true;
  request.path = Path::kLocal;
  ASSERT_TRUE(ConnectTo(router.address())->Generate(request).status.ok());
  const v1::GenerateRequest& sent = router.last_generate;
  EXPECT_THAT(sent.prompt_ids().ids(), ElementsAre(3, 4));
  EXPECT_EQ(sent.sampling().temperature(), 0.5f);
  EXPECT_FALSE(sent.sampling().has_top_k());
  EXPECT_FALSE(sent.sampling().has_top_p());
  EXPECT_EQ(sent.sampling().seed(), 1ull << 63);
  EXPECT_EQ(sent.stop().max_tokens(), 9u);
  EXPECT_THAT(sent.stop().stop(), ElementsAre("a", "b"));
  EXPECT_THAT(sent.stop().stop_token_ids(), ElementsAre(8));
  EXPECT_TRUE(sent.stop().ignore_eos());
  EXPECT_EQ(sent.path(), v1::PATH_LOCAL);
}

TEST(Client, SendsMessagesThroughChat) {
  ScriptedRouter router(AnswerHi);
  Request request;
  request.messages = {{"system", "be brief"}, {"user", "hello"}};
  ASSERT_TRUE(ConnectTo(router.address())->Generate(request).status.ok());
  ASSERT_EQ(router.last_chat.messages_size(), 2);
  EXPECT_EQ(router.last_chat.messages(1).role(), "user");
  EXPECT_EQ(router.last_chat.messages(1).content(), "hello");
}

TEST(Client, FalseFromTheCallbackCancelsAtTheServer) {
  std::promise<bool> cancelled;
  ScriptedRouter router([&](grpc::ServerContext* context, ScriptedRouter::Writer* writer) {
    writer->Write(TokensEvent(0, {1}, "a"));
    const grpc::Status status = UntilCancelled(context);
    cancelled.set_value(context->IsCancelled());
    return status;
  });
  const Result result =
      ConnectTo(router.address())->Generate(Prompt("x"), [](const auto&) { return false; });
  EXPECT_EQ(result.status.code, StatusCode::kCancelled);
  EXPECT_EQ(result.text, "a");
  EXPECT_EQ(result.finish_reason, "");
  EXPECT_TRUE(cancelled.get_future().get());
}

TEST(Client, TokenCancelsFromAnotherThread) {
  std::promise<void> started;
  ScriptedRouter router([&](grpc::ServerContext* context, ScriptedRouter::Writer*) {
    started.set_value();
    return UntilCancelled(context);
  });
  const auto client = ConnectTo(router.address());
  Client::CancelToken cancel;
  auto result =
      std::async(std::launch::async, [&] { return client->Generate(Prompt("x"), {}, cancel); });
  started.get_future().wait();
  cancel.Cancel();
  EXPECT_EQ(result.get().status.code, StatusCode::kCancelled);
}

TEST(Client, TokenCancelledBeforehandStopsTheCallAtOnce) {
  ScriptedRouter router([](grpc::ServerContext* context, ScriptedRouter::Writer*) {
    return UntilCancelled(context);
  });
  Client::CancelToken cancel;
  cancel.Cancel();
  const Result result = ConnectTo(router.address())->Generate(Prompt("x"), {}, cancel);
  EXPECT_EQ(result.status.code, StatusCode::kCancelled);
}

TEST(Client, DeadlineEndsAStreamThatStandsStill) {
  ScriptedRouter router([](grpc::ServerContext* context, ScriptedRouter::Writer* writer) {
    writer->Write(TokensEvent(0, {1}, "a"));
    return UntilCancelled(context);
  });
  Request request = Prompt("x");
  request.deadline = milliseconds(150);
  const auto begin = steady_clock::now();
  const Result result = ConnectTo(router.address())->Generate(request);
  EXPECT_EQ(result.status.code, StatusCode::kDeadlineExceeded);
  EXPECT_EQ(result.text, "a");
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(Client, ReadsFieldAndRetryDelayFromTheDetails) {
  ScriptedRouter router([](grpc::ServerContext*, ScriptedRouter::Writer*) {
    google::rpc::Status details;
    google::rpc::BadRequest bad;
    bad.add_field_violations()->set_field("sampling.top_p");
    details.add_details()->PackFrom(bad);
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(1);
    retry.mutable_retry_delay()->set_nanos(250'000'000);
    details.add_details()->PackFrom(retry);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "top_p must be above 0",
                        details.SerializeAsString());
  });
  const Status status = ConnectTo(router.address())->Generate(Prompt("x")).status;
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message, "top_p must be above 0");
  EXPECT_EQ(status.field, "sampling.top_p");
  EXPECT_EQ(status.retry_after, milliseconds(1250));
}

TEST(Client, RouterThatVanishesMidStreamIsUnavailable) {
  ScriptedRouter router([](grpc::ServerContext* context, ScriptedRouter::Writer* writer) {
    writer->Write(TokensEvent(0, {1}, "a"));
    return UntilCancelled(context);
  });
  TcpRelay relay(router.port());
  const auto begin = steady_clock::now();
  const Result result = ConnectTo(relay.address())->Generate(Prompt("x"), [&](const auto&) {
    relay.Cut();
    return true;
  });
  EXPECT_EQ(result.status.code, StatusCode::kUnavailable);
  EXPECT_EQ(result.text, "a");
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(Client, NoRouterIsUnavailableAndNamesTheAddress) {
  const auto client = ConnectTo("127.0.0.1:1");
  const Status status = client->Generate(Prompt("x")).status;
  EXPECT_EQ(status.code, StatusCode::kUnavailable);
  EXPECT_THAT(status.message, HasSubstr("no connection to the router at 127.0.0.1:1"));
  EXPECT_EQ(client->WaitReady(milliseconds(50)).code, StatusCode::kUnavailable);
}

TEST(Client, StreamWithoutResultIsAnError) {
  ScriptedRouter router([](grpc::ServerContext*, ScriptedRouter::Writer* writer) {
    writer->Write(TokensEvent(0, {1}, "a"));
    return grpc::Status::OK;
  });
  EXPECT_EQ(ConnectTo(router.address())->Generate(Prompt("x")).status.code, StatusCode::kInternal);
}

TEST(Client, InvalidUtf8IsRefusedByNameBeforeItIsSent) {
  const auto client = ConnectTo("127.0.0.1:1");
  Request request;
  request.messages = {{"user", "ok"}, {"user", "caf\xC3"}};
  const Status status = client->Generate(request).status;
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field, "messages[1].content");
  EXPECT_THAT(status.message, HasSubstr("byte 3"));
  EXPECT_EQ(client->Tokenize(Prompt("\xED\xA0\x80")).first.code, StatusCode::kInvalidArgument);
}

TEST(Client, UnreadableCertificateIsNamedInEveryCall) {
  const auto client = Client::Connect(
      {.router = "127.0.0.1:1", .tls_ca = "/nonexistent/ca.pem", .tls_cert = {}, .tls_key = {}});
  for (const Status& status : {client->Generate(Prompt("x")).status, client->ListModels().first,
                               client->WaitReady(milliseconds(10))}) {
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field, "tls_ca");
    EXPECT_THAT(status.message, HasSubstr("/nonexistent/ca.pem"));
  }
}

TEST(Client, TokenizesDetokenizesAndReportsModelsAndCluster) {
  ScriptedRouter router(AnswerHi);
  const auto client = ConnectTo(router.address());
  EXPECT_TRUE(client->WaitReady(std::chrono::seconds(5)).ok());
  EXPECT_THAT(client->Tokenize(Prompt("hello")).second, ElementsAre(5, 6, 7));
  EXPECT_EQ(router.last_tokenize.prompt(), "hello");
  EXPECT_EQ(client->Detokenize({4, 2}).second, "42");
  const auto [status, cluster] = client->GetClusterStatus();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(cluster.queued_requests, 3u);
  ASSERT_EQ(cluster.workers.size(), 1u);
  EXPECT_EQ(cluster.workers[0].role, "decode");
  EXPECT_EQ(cluster.workers[0].kv_blocks_free, 60u);
  const auto [models_status, models] = client->ListModels();
  ASSERT_TRUE(models_status.ok());
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "scripted");
  EXPECT_EQ(models[0].context_tokens, 512u);
}

TEST(Client, ThreadsShareOneConnection) {
  ScriptedRouter router(AnswerHi);
  TcpRelay relay(router.port());  // carries one connection, no more
  const auto client = ConnectTo(relay.address());
  std::vector<std::future<Result>> results;
  results.reserve(4);
  for (int i = 0; i < 4; ++i) {
    results.push_back(
        std::async(std::launch::async, [&] { return client->Generate(Prompt("x")); }));
  }
  for (auto& result : results) EXPECT_EQ(result.get().text, "Hi!");
}

}  // namespace
}  // namespace baton
