// SPDX-License-Identifier: Apache-2.0
// A whole router behind gRPC, with workers that only speak the protocol.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <thread>

#include "baton/v1/inference.grpc.pb.h"
#include "common/base/log.h"
#include "common/rpc/status.h"
#include "router/clock.h"
#include "router/router.h"
#include "tests/router/fake_worker.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

const std::string kBadUtf8 = "\xFF\xFE\xC0\x80\xED\xA0\x80";

// Everything one answer said.
struct Answer {
  grpc::Status status;
  std::string text;
  std::vector<uint32_t> ids;
  std::vector<v1::Started> started;
  std::vector<v1::Finished> finished;
  int messages = 0;

  absl::Status error() const { return rpc::FromGrpc(status); }
};

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    options_.listen = "127.0.0.1:0";
    options_.metrics_listen = "";
    model_->context = 1 << 20;
  }

  void StartRouter() {
    auto router = Router::Start(options_, std::make_unique<ModelSlot>(model_));
    ASSERT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
    channel_ = grpc::CreateChannel(router_->address(), grpc::InsecureChannelCredentials());
    stub_ = v1::Inference::NewStub(channel_);
  }

  std::unique_ptr<FakeWorker> Attach(const std::string& id, v1::WorkerRole role,
                                     FakeWorker::OnAssign on_assign = {}) {
    auto worker = std::make_unique<FakeWorker>(router_->address(), MakeHello(id, role, 1 << 20),
                                               std::move(on_assign));
    EXPECT_TRUE(worker->WaitWelcome());
    return worker;
  }

  static v1::GenerateRequest Prompt(const std::string& text, v1::Path path = v1::PATH_LOCAL) {
    v1::GenerateRequest request;
    request.set_prompt(text);
    request.set_path(path);
    return request;
  }

  using Reader = grpc::ClientReader<v1::GenerateResponse>;
  static Answer ReadAll(Reader& reader) {
    Answer answer;
    v1::GenerateResponse event;
    while (reader.Read(&event)) {
      ++answer.messages;
      if (event.has_started()) answer.started.push_back(event.started());
      if (event.has_finished()) answer.finished.push_back(event.finished());
      answer.text += event.tokens().text();
      for (const uint32_t id : event.tokens().token_ids()) answer.ids.push_back(id);
    }
    answer.status = reader.Finish();
    return answer;
  }
  Answer Generate(const v1::GenerateRequest& request, absl::Duration deadline = absl::Seconds(5)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    return ReadAll(*stub_->Generate(&context, request));
  }

  // grpc.health.v1 without its generated code: 1 is SERVING, 2 NOT_SERVING.
  int Health(const std::string& service) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    const grpc::Slice slice(std::string("\x0A") + static_cast<char>(service.size()) + service);
    grpc::ByteBuffer request(&slice, 1), response;
    grpc::CompletionQueue queue;
    auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    grpc::Slice answer;
    if (!status.ok() || !response.DumpToSingleSlice(&answer).ok() || answer.size() != 2) return -1;
    return answer.begin()[1];
  }

  Options options_;
  std::shared_ptr<ServedModel> model_ = MakeTextModel();
  std::unique_ptr<Router> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(ServiceTest, AnswersThroughBothWorkers) {
  StartRouter();
  const auto decode =
      Attach("d", v1::WORKER_ROLE_DECODE, [](FakeWorker& self, const v1::Assign& assign) {
        self.Tokens(assign.sequence_key(), 1, {'B'});  // may well overtake token 0
        self.Tokens(assign.sequence_key(), 2, {'C', FakeTokenizer::kEnd});
        self.End(assign.sequence_key(), v1::FINISH_REASON_STOP);
      });
  const auto prefill =
      Attach("p", v1::WORKER_ROLE_PREFILL, [](FakeWorker& self, const v1::Assign& assign) {
        self.Tokens(assign.sequence_key(), 0, {'A'});
        self.End(assign.sequence_key(), v1::FINISH_REASON_UNSPECIFIED, true);
      });
  v1::GenerateRequest request = Prompt("hello", v1::PATH_SPLIT);
  request.set_request_id("mine");
  const Answer answer = Generate(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "ABC");
  EXPECT_EQ(answer.ids, (std::vector<uint32_t>{'A', 'B', 'C', FakeTokenizer::kEnd}));
  ASSERT_EQ(answer.started.size(), 1u);
  EXPECT_EQ(answer.started[0].request_id(), "mine");
  ASSERT_EQ(answer.finished.size(), 1u);
  EXPECT_EQ(answer.finished[0].usage().prompt_tokens(), 6u);
  EXPECT_EQ(answer.finished[0].route().prefill_worker(), "p");
}

TEST_F(ServiceTest, ConcurrentStreamsDoNotMix) {
  StartRouter();
  // The answer is the prompt.
  const auto worker =
      Attach("d", v1::WORKER_ROLE_DECODE, [](FakeWorker& self, const v1::Assign& assign) {
        for (int i = 1; i < assign.prompt_ids_size(); ++i) {
          self.Tokens(assign.sequence_key(), static_cast<uint32_t>(i - 1), {assign.prompt_ids(i)});
        }
        self.End(assign.sequence_key(), v1::FINISH_REASON_STOP);
      });
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([this, i] {
      for (int round = 0; round < 4; ++round) {
        const std::string text = "request " + std::to_string(i) + " round " + std::to_string(round);
        const Answer answer = Generate(Prompt(text));
        EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
        EXPECT_EQ(answer.text, text);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(ServiceTest, CancelledClientStopsBothWorkers) {
  StartRouter();
  const auto decode = Attach("d", v1::WORKER_ROLE_DECODE);
  const auto prefill =
      Attach("p", v1::WORKER_ROLE_PREFILL, [](FakeWorker& self, const v1::Assign& assign) {
        self.Tokens(assign.sequence_key(), 0, {'A'});
      });
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Prompt("x", v1::PATH_SPLIT));
  v1::GenerateResponse event;
  ASSERT_TRUE(reader->Read(&event));
  context.TryCancel();
  EXPECT_TRUE(decode->WaitCancel(decode->WaitAssign().sequence_key()));
  EXPECT_TRUE(prefill->WaitCancel(prefill->WaitAssign().sequence_key()));
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ServiceTest, DeadlineOfTheClientReachesTheWorkerAndEndsItsSequence) {
  StartRouter();
  const auto worker = Attach("d", v1::WORKER_ROLE_DECODE);
  const Answer answer = Generate(Prompt("x"), absl::Milliseconds(200));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const v1::Assign assign = worker->WaitAssign();
  EXPECT_GT(assign.deadline_ms(), 0u);
  EXPECT_LE(assign.deadline_ms(), 200u);
  EXPECT_TRUE(worker->WaitCancel(assign.sequence_key()));
}

TEST_F(ServiceTest, LostWorkerEndsItsStreamAtOnceAndANewOneServes) {
  StartRouter();
  auto worker = Attach("d", v1::WORKER_ROLE_DECODE, [](FakeWorker& self, const v1::Assign& assign) {
    self.Tokens(assign.sequence_key(), 0, {'A'});
  });
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Prompt("x"));
  v1::GenerateResponse event;
  ASSERT_TRUE(reader->Read(&event));
  const absl::Time lost = SteadyNow();
  worker->Detach();
  const Answer answer = ReadAll(*reader);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(answer.finished.empty());
  EXPECT_LT(SteadyNow() - lost, absl::Seconds(1));

  worker = Attach("d", v1::WORKER_ROLE_DECODE, [](FakeWorker& self, const v1::Assign& assign) {
    self.Tokens(assign.sequence_key(), 0, {'B'});
    self.End(assign.sequence_key(), v1::FINISH_REASON_LENGTH);
  });
  EXPECT_EQ(Generate(Prompt("x")).text, "B");
}

TEST_F(ServiceTest, WorkerWithAnotherModelIsTurnedAway) {
  StartRouter();
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_model_fingerprint("beef");
  FakeWorker worker(router_->address(), hello);
  const grpc::Status status = worker.WaitEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find("beef"), std::string::npos);
}

TEST_F(ServiceTest, InvalidUtf8IsTheCallersFaultAndNamesTheField) {
  StartRouter();
  Answer answer = Generate(Prompt(kBadUtf8));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(rpc::FieldOf(answer.error()), "prompt");

  v1::ChatRequest chat;
  chat.add_messages()->set_content(kBadUtf8);
  grpc::ClientContext chat_context;
  answer = ReadAll(*stub_->Chat(&chat_context, chat));
  EXPECT_EQ(rpc::FieldOf(answer.error()), "messages[0].content");

  v1::TokenizeRequest tokenize;
  tokenize.set_prompt(kBadUtf8);
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(rpc::FieldOf(rpc::FromGrpc(stub_->Tokenize(&context, tokenize, &response))), "prompt");
}

TEST_F(ServiceTest, MessageOverTheLimitIsRefusedByItsSizeAndTheConnectionLivesOn) {
  StartRouter();
  const Answer ours = Generate(Prompt(std::string(6 << 20, 'x')));
  EXPECT_EQ(ours.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(ours.status.error_message().find("the limit is 4194304"), std::string::npos)
      << ours.status.error_message();
  const Answer huge = Generate(Prompt(std::string(20 << 20, 'x')));
  EXPECT_EQ(huge.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Generate(Prompt("")).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// 100 tokens with log-probabilities, about 22 KB: a client library that is
// never asked for a message takes some megabytes before flow control acts.
v1::WorkerMessage BigStep(uint64_t key) {
  v1::WorkerMessage message;
  v1::SequenceTokens* tokens = message.mutable_step()->add_tokens();
  tokens->set_sequence_key(key);
  for (int i = 0; i < 100; ++i) {
    tokens->add_token_ids('x');
    v1::TokenLogprobs* logprobs = tokens->add_logprobs();
    for (uint32_t top = 0; top < 20; ++top) {
      logprobs->add_top()->set_token_id(400 + top);
      logprobs->mutable_top(static_cast<int>(top))->set_logprob(-1.5f);
    }
  }
  return message;
}

// Says up to `steps` big steps, until the router cancels.
void Flood(FakeWorker& worker, uint64_t key, uint32_t steps) {
  v1::WorkerMessage message = BigStep(key);
  for (uint32_t i = 0; i < steps && !worker.cancelled(key); ++i) {
    message.mutable_step()->mutable_tokens(0)->set_first_index(100 * i);
    worker.Say(message);
  }
}

v1::GenerateRequest LongRequest() {
  v1::GenerateRequest request;
  request.set_prompt("x");
  request.set_path(v1::PATH_LOCAL);
  request.mutable_sampling()->set_logprobs(20);
  request.mutable_stop()->set_max_tokens(1 << 19);
  return request;
}

TEST_F(ServiceTest, ClientThatNeverReadsIsEndedByTheBytesThatWaitForIt) {
  options_.max_pending_bytes = 256 << 10;
  StartRouter();
  const auto worker = Attach("d", v1::WORKER_ROLE_DECODE);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, LongRequest());
  const uint64_t key = worker->WaitAssign().sequence_key();
  Flood(*worker, key, 5000);
  EXPECT_TRUE(worker->WaitCancel(key));
  const Answer answer = ReadAll(*reader);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(answer.status.error_message().find("bytes wait for it"), std::string::npos);
  EXPECT_TRUE(answer.finished.empty());
}

TEST_F(ServiceTest, ClientThatNeverReadsIsEndedByTheClockWhenNothingMoreComes) {
  options_.max_pending_bytes = 256 << 20;
  options_.max_stall = absl::Milliseconds(200);
  StartRouter();
  const auto worker = Attach("d", v1::WORKER_ROLE_DECODE);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, LongRequest());
  const uint64_t key = worker->WaitAssign().sequence_key();
  Flood(*worker, key, 800);  // 18 MB
  EXPECT_TRUE(worker->WaitCancel(key));
  const Answer answer = ReadAll(*reader);
  // Its status waits behind what it has not read; a client that takes neither
  // in the same time again is cut off.
  EXPECT_FALSE(answer.status.ok());
  EXPECT_TRUE(answer.finished.empty());
}

TEST_F(ServiceTest, ReaderThatLagsGetsFewerMessagesAndAllTokens) {
  StartRouter();
  constexpr uint32_t kTokens = 100'000;
  const auto worker =
      Attach("d", v1::WORKER_ROLE_DECODE, [](FakeWorker& self, const v1::Assign& assign) {
        const std::vector<uint32_t> ids(50, 'x');
        for (uint32_t i = 0; i < kTokens; i += 50) self.Tokens(assign.sequence_key(), i, ids);
        self.End(assign.sequence_key(), v1::FINISH_REASON_LENGTH);
      });
  v1::GenerateRequest request = Prompt("x");
  request.mutable_stop()->set_max_tokens(kTokens);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, request);
  worker->WaitAssign();  // all is said by then
  const Answer answer = ReadAll(*reader);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.ids.size(), kTokens);
  EXPECT_EQ(answer.text.size(), kTokens);
  EXPECT_LT(answer.messages, 2003);
}

TEST_F(ServiceTest, DrainLetsRunningStreamsFinishAndRefusesNewOnes) {
  StartRouter();
  const auto worker = Attach("d", v1::WORKER_ROLE_DECODE);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Prompt("x"));
  const uint64_t key = worker->WaitAssign().sequence_key();
  EXPECT_EQ(Health("readiness"), 1);
  std::thread drain([this] { router_->Drain(absl::Seconds(5)); });
  while (Health("baton.v1.Inference") == 1) std::this_thread::yield();
  EXPECT_EQ(Health("readiness"), 2);
  EXPECT_EQ(Health("liveness"), 1);
  EXPECT_EQ(Generate(Prompt("y")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  worker->Tokens(key, 0, {'A'});
  worker->End(key, v1::FINISH_REASON_LENGTH);
  const Answer answer = ReadAll(*reader);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "A");
  drain.join();
  EXPECT_EQ(worker->WaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServiceTest, DrainEndsWhatDoesNotFinishAndReturns) {
  StartRouter();
  const auto worker = Attach("d", v1::WORKER_ROLE_DECODE);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Prompt("x"));
  const uint64_t key = worker->WaitAssign().sequence_key();
  const absl::Time start = SteadyNow();
  std::thread drain([this] { router_->Drain(absl::Milliseconds(100)); });
  EXPECT_EQ(ReadAll(*reader).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(worker->WaitCancel(key));
  drain.join();
  EXPECT_LT(SteadyNow() - start, absl::Seconds(2));
}

TEST_F(ServiceTest, ReadinessFollowsTheDecodeWorkers) {
  StartRouter();
  EXPECT_EQ(Health(""), 2);
  const auto prefill = Attach("p", v1::WORKER_ROLE_PREFILL);
  EXPECT_EQ(Health(""), 2);
  const auto decode = Attach("d", v1::WORKER_ROLE_DECODE);
  const absl::Time limit = SteadyNow() + absl::Seconds(1);
  while (Health("") != 1 && SteadyNow() < limit) std::this_thread::yield();
  EXPECT_EQ(Health("readiness"), 1);
}

TEST_F(ServiceTest, UnaryCallsAnswer) {
  model_->context = 100;
  StartRouter();
  const auto worker = Attach("d", v1::WORKER_ROLE_DECODE);
  grpc::ClientContext c1, c2, c3, c4, c5;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&c1, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).name(), "toy");
  EXPECT_EQ(models.models(0).context_tokens(), 100u);
  EXPECT_EQ(models.models(0).prompt_format(), "fake");
  EXPECT_TRUE(models.models(0).has_tokenizer());

  v1::TokenizeRequest text;
  text.set_prompt("ab");
  v1::TokenizeResponse ids;
  ASSERT_TRUE(stub_->Tokenize(&c2, text, &ids).ok());
  EXPECT_EQ(ids.token_ids_size(), 3);

  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids.token_ids();
  back.add_token_ids(0xE2);  // the start of a character
  v1::DetokenizeResponse decoded;
  ASSERT_TRUE(stub_->Detokenize(&c3, back, &decoded).ok());
  EXPECT_EQ(decoded.text(), "ab\xEF\xBF\xBD");

  v1::GetClusterStatusResponse status;
  ASSERT_TRUE(stub_->GetClusterStatus(&c4, {}, &status).ok());
  ASSERT_EQ(status.workers_size(), 1);
  EXPECT_EQ(status.workers(0).worker_id(), "d");
  EXPECT_FALSE(status.version().empty());

  text.set_model("other");
  EXPECT_EQ(stub_->Tokenize(&c5, text, &ids).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, PortInUseIsNamed) {
  StartRouter();
  options_.listen = router_->address();
  const auto second = Router::Start(options_, std::make_unique<ModelSlot>(model_));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(options_.listen), std::string::npos);
}

TEST_F(ServiceTest, WorkersHaveAnAddressOfTheirOwnWhereAsked) {
  options_.worker_listen = "127.0.0.1:0";
  StartRouter();
  ASSERT_NE(router_->worker_address(), router_->address());
  FakeWorker worker(router_->worker_address(), MakeHello("d", v1::WORKER_ROLE_DECODE, 1 << 20));
  EXPECT_TRUE(worker.WaitWelcome());

  // Neither address serves what the other is for.
  const auto registry = v1::Registry::NewStub(channel_);
  grpc::ClientContext attach_context;
  EXPECT_EQ(registry->Attach(&attach_context)->Finish().error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  const auto api = v1::Inference::NewStub(
      grpc::CreateChannel(router_->worker_address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext list_context;
  v1::ListModelsResponse models;
  EXPECT_EQ(api->ListModels(&list_context, {}, &models).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServiceTest, AddressOfWorkersInUseIsNamedWithItsFlag) {
  StartRouter();
  options_.worker_listen = router_->address();
  const auto second = Router::Start(options_, std::make_unique<ModelSlot>(model_));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("--worker-listen"), std::string::npos);
}

TEST_F(ServiceTest, OptionsThatContradictAreRefusedByName) {
  options_.lease = absl::Milliseconds(100);
  const auto router = Router::Start(options_, std::make_unique<ModelSlot>(model_));
  EXPECT_EQ(router.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(router.status().message().find("--lease"), std::string::npos);
}

}  // namespace
}  // namespace baton::router
