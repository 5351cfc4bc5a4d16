// SPDX-License-Identifier: Apache-2.0
// The `baton` binary as a user meets it: outputs, exit codes, Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "baton/v1/admin.grpc.pb.h"
#include "tests/client/child_process.h"
#include "tests/client/scripted_router.h"

namespace baton {
namespace {

using testing::ChildProcess;
using ::testing::HasSubstr;
using testing::ScriptedRouter;
using Json = nlohmann::json;

grpc::Status Answer(grpc::ServerContext*, ScriptedRouter::Writer* writer) {
  writer->Write(testing::StartedEvent("r", 1));
  writer->Write(testing::TokensEvent(0, {1, 2}, "Hello "));
  writer->Write(testing::TokensEvent(2, {3}, "you"));
  writer->Write(testing::FinishedEvent(v1::FINISH_REASON_LENGTH));
  return grpc::Status::OK;
}

// Says "half" and then nothing until the client has gone.
grpc::Status Hang(grpc::ServerContext* context, ScriptedRouter::Writer* writer) {
  writer->Write(testing::TokensEvent(0, {1}, "half"));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!context->IsCancelled() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {grpc::StatusCode::CANCELLED, "gone"};
}

ChildProcess Baton(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BATON_BINARY_DIR "/bin/baton");
  return ChildProcess(std::move(arguments));
}

TEST(Command, GeneratePrintsTheTextAloneAndTheTimingBesideIt) {
  ScriptedRouter router(Answer);
  ChildProcess baton = Baton({"generate", "--prompt", "x", "--router", router.address()});
  EXPECT_EQ(baton.Wait(), 0);
  EXPECT_EQ(baton.output(), "Hello you\n");
  EXPECT_THAT(baton.error(), HasSubstr("answer 3 tokens (length)"));
  EXPECT_THAT(baton.error(), HasSubstr("prefill-1 -> decode-1 over shm"));
}

TEST(Command, GenerateSendsWhatTheFlagsSay) {
  ScriptedRouter router(Answer);
  ChildProcess baton = Baton({"generate", "--prompt-ids", "4,5", "--max-tokens", "7", "--stop",
                              "a,b", "--stop", "c", "--temperature", "0.5", "--ignore-eos",
                              "--path", "split", "--quiet", "--router", router.address()});
  EXPECT_EQ(baton.Wait(), 0);
  EXPECT_EQ(baton.error(), "");
  const v1::GenerateRequest& sent = router.last_generate;
  EXPECT_THAT(sent.prompt_ids().ids(), ::testing::ElementsAre(4, 5));
  EXPECT_EQ(sent.stop().max_tokens(), 7u);
  EXPECT_THAT(sent.stop().stop(), ::testing::ElementsAre("a,b", "c"));
  EXPECT_EQ(sent.sampling().temperature(), 0.5f);
  EXPECT_FALSE(sent.sampling().has_top_p());
  EXPECT_TRUE(sent.stop().ignore_eos());
  EXPECT_EQ(sent.path(), v1::PATH_SPLIT);
}

TEST(Command, GenerateSendsConstraints) {
  ScriptedRouter router(Answer);
  ChildProcess schema = Baton(
      {"generate", "--prompt", "p", "--json-schema", "-", "--quiet", "--router", router.address()});
  schema.Type(R"({"type":"integer"})");
  schema.CloseInput();
  EXPECT_EQ(schema.Wait(), 0);
  EXPECT_EQ(router.last_generate.constraint().json_schema(), R"({"type":"integer"})");
  EXPECT_FALSE(router.last_generate.constraint().has_regex());

  ChildProcess others =
      Baton({"generate", "--prompt", "p", "--regex", "a|b", "--choices", "yes", "--choices", "no",
             "--json-mode", "value", "--quiet", "--router", router.address()});
  EXPECT_EQ(others.Wait(), 0);
  EXPECT_EQ(router.last_generate.constraint().regex(), "a|b");
  EXPECT_THAT(router.last_generate.constraint().choices(), ::testing::ElementsAre("yes", "no"));
  EXPECT_EQ(router.last_generate.constraint().json(), v1::Constraint::JSON_TEXT_VALUE);

  ChildProcess none = Baton({"generate", "--prompt", "p", "--quiet", "--router", router.address()});
  EXPECT_EQ(none.Wait(), 0);
  EXPECT_FALSE(router.last_generate.has_constraint());
}

TEST(Command, GenerateReadsPromptAndConversationFromStandardInput) {
  ScriptedRouter router(Answer);
  ChildProcess prompt = Baton({"generate", "--prompt", "-", "--router", router.address()});
  prompt.Type("two\nlines");
  prompt.CloseInput();
  EXPECT_EQ(prompt.Wait(), 0);
  EXPECT_EQ(router.last_generate.prompt(), "two\nlines");

  ChildProcess chat = Baton({"generate", "--chat", "-", "--json", "--router", router.address()});
  chat.Type(R"({"messages":[{"role":"user","content":"hi"}]})");
  chat.CloseInput();
  EXPECT_EQ(chat.Wait(), 0);
  EXPECT_EQ(router.last_chat.messages(0).content(), "hi");
  EXPECT_EQ(Json::parse(chat.output())["text"], "Hello you");
}

TEST(Command, GenerateAnswersAFileLineByLineAndFailsWhenOneFails) {
  ScriptedRouter router(Answer);
  ChildProcess baton =
      Baton({"generate", "--input", "-", "--concurrency", "2", "--router", router.address()});
  baton.Type("{\"prompt\":\"a\"}\n");
  // Written as soon as it is there, while the input is still open.
  EXPECT_TRUE(baton.WaitForOutput("\n"));
  baton.Type("{\"prompt\":\"b\",\"max_tokns\":3}\n");
  baton.CloseInput();
  EXPECT_EQ(baton.Wait(), 1);
  const size_t end = baton.output().find('\n');
  EXPECT_EQ(Json::parse(baton.output().substr(0, end))["finish_reason"], "length");
  EXPECT_THAT(Json::parse(baton.output().substr(end + 1))["error"]["message"].get<std::string>(),
              HasSubstr("did you mean \"max_tokens\"?"));
}

TEST(Command, FailedRequestIsOneAndWrongUsageTwo) {
  ChildProcess failed = Baton({"generate", "--prompt", "x", "--router", "127.0.0.1:1"});
  EXPECT_EQ(failed.Wait(), 1);
  EXPECT_EQ(failed.output(), "");
  EXPECT_THAT(failed.error(), HasSubstr("UNAVAILABLE: no connection to the router"));

  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"generate"}, "nothing to do"},
      {{"generate", "--promt", "x"}, "did you mean --prompt?"},
      {{"generate", "--prompt", "x", "--prompt-ids", "1"}, "give one of"},
      {{"generate", "--prompt-ids", "1,x"}, "--prompt-ids: \"x\""},
      {{"generate", "--prompt", "x", "--deadline", "soon"}, "deadline must be a time"},
      {{"generate", "--chat", "/nonexistent.json"}, "cannot read /nonexistent.json"},
      {{"generate", "--input", "x", "--prompt", "y"}, "exclude each other"},
      {{"score", "--model", "embedded"}, "give one of --text"},
      {{"bench"}, "baton bench machine"},
      {{"bench", "machine", "--seconds", "0"}, "--seconds must be above 0"},
      {{"bench", "kernels", "embedded", "--rows", "0"}, "--rows must be"},
      {{"kv-budget", "--layers", "3"}, "--layers, --kv-heads and --head-dim together"},
      {{"inspect"}, "which model?"},
  };
  for (const auto& [arguments, sentence] : wrong) {
    ChildProcess baton = Baton(arguments);
    EXPECT_EQ(baton.Wait(), 2) << arguments[0];
    EXPECT_THAT(baton.error(), HasSubstr(sentence));
    EXPECT_EQ(baton.output(), "");
  }
}

TEST(Command, CtrlCCancelsGenerate) {
  ScriptedRouter router(Hang);
  ChildProcess baton = Baton({"generate", "--prompt", "x", "--router", router.address()});
  ASSERT_TRUE(baton.WaitForOutput("half"));
  baton.Interrupt();
  EXPECT_EQ(baton.Wait(), 1);
  EXPECT_EQ(baton.output(), "half\n");
  EXPECT_THAT(baton.error(), HasSubstr("CANCELLED"));
}

TEST(Command, CtrlCInChatCancelsTheAnswerAndTwiceAtThePromptLeaves) {
  ScriptedRouter router(Hang);
  ChildProcess baton = Baton({"chat", "--router", router.address()});
  baton.Type("one\n");
  ASSERT_TRUE(baton.WaitForOutput("half"));
  baton.Interrupt();
  ASSERT_TRUE(baton.WaitForError("[stopped]"));
  // The conversation goes on, with what was said.
  baton.Type("two\n");
  ASSERT_TRUE(baton.WaitForOutput("half\nhalf"));
  EXPECT_EQ(router.last_chat.messages_size(), 3);
  baton.Interrupt();
  ASSERT_TRUE(baton.WaitForError("[stopped]\n[stopped]"));
  baton.Interrupt();
  ASSERT_TRUE(baton.WaitForError("again or /exit leaves"));
  baton.Interrupt();
  EXPECT_EQ(baton.Wait(), 0);
}

TEST(Command, StatusShowsWorkers) {
  ScriptedRouter router(Answer);
  ChildProcess table = Baton({"status", "--router", router.address()});
  EXPECT_EQ(table.Wait(), 0) << table.error();
  EXPECT_THAT(table.output(), HasSubstr("decode-1  decode  ready"));
  EXPECT_THAT(table.output(), HasSubstr("4/64"));
  ChildProcess json = Baton({"status", "--json", "--router", router.address()});
  EXPECT_EQ(json.Wait(), 0);
  EXPECT_EQ(Json::parse(json.output())["workers"][0]["kv"]["blocks_free"], 60);
}

class ScriptedAdmin final : public v1::Admin::Service {
 public:
  ScriptedAdmin() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  grpc::Status GetKvDump(grpc::ServerContext*, const v1::GetKvDumpRequest*,
                         v1::KvDump* dump) override {
    dump->set_worker_id("decode-1");
    dump->set_role("decode");
    dump->set_blocks_total(10);
    dump->set_blocks_free(6);
    dump->add_owners()->set_request_id("r-7");
    v1::KvRun* held = dump->add_runs();
    held->set_count(4);
    held->set_requests(1);
    held->add_owners(0);
    v1::KvRun* free = dump->add_runs();
    free->set_first(4);
    free->set_count(6);
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(Command, KvDumpAsksTheWorker) {
  ScriptedAdmin worker;
  ScriptedRouter router(Answer);
  router.admin_address = worker.address();
  for (const std::vector<std::string>& which :
       {std::vector<std::string>{}, {"--worker", "decode-1"}}) {
    std::vector<std::string> arguments = {"status", "--kv-dump", "--router", router.address()};
    arguments.insert(arguments.end(), which.begin(), which.end());
    ChildProcess listed = Baton(arguments);
    EXPECT_EQ(listed.Wait(), 0) << listed.error();
    EXPECT_THAT(listed.output(), HasSubstr("r-7"));
  }
  ChildProcess table = Baton({"status", "--kv-dump", "--worker", worker.address()});
  EXPECT_EQ(table.Wait(), 0) << table.error();
  EXPECT_THAT(table.output(), HasSubstr("decode-1 (decode)"));
  EXPECT_THAT(table.output(), HasSubstr("r-7"));
  ChildProcess json = Baton({"status", "--kv-dump", "--json", "--worker", worker.address()});
  EXPECT_EQ(json.Wait(), 0) << json.error();
  const Json dumps = Json::parse(json.output());
  EXPECT_EQ(dumps[0]["runs"][1]["count"], 6);
  EXPECT_EQ(dumps[0]["owners"][0]["request_id"], "r-7");
}

TEST(Command, KvDumpSaysWhatIsMissing) {
  ScriptedRouter router(Answer);
  ChildProcess unknown =
      Baton({"status", "--kv-dump", "--worker", "nobody", "--router", router.address()});
  EXPECT_EQ(unknown.Wait(), 1);
  EXPECT_THAT(unknown.error(), HasSubstr("where worker nobody listens"));
  ChildProcess alone = Baton({"status", "--worker", "127.0.0.1:1"});
  EXPECT_EQ(alone.Wait(), 2);
  EXPECT_THAT(alone.error(), HasSubstr("--worker needs --kv-dump"));
  ChildProcess dead = Baton({"status", "--kv-dump", "--worker", "127.0.0.1:1"});
  EXPECT_EQ(dead.Wait(), 1);
  EXPECT_THAT(dead.error(), HasSubstr("worker at 127.0.0.1:1"));
}

TEST(Command, TokenizesThroughTheRouterAndInProcess) {
  ScriptedRouter router(Answer);
  ChildProcess remote =
      Baton({"tokenize", "--prompt", "x", "--json", "--pieces", "--router", router.address()});
  EXPECT_EQ(remote.Wait(), 0);
  EXPECT_EQ(Json::parse(remote.output()),
            Json::parse(R"({"count": 3, "token_ids": [5, 6, 7], "pieces": ["5", "6", "7"]})"));
  ChildProcess local = Baton({"tokenize", "--model", "embedded", "--prompt", "7+8=？"});
  EXPECT_EQ(local.Wait(), 0);
  EXPECT_EQ(local.output(), "641,643,494,551,541,552,343\n");
}

TEST(Command, ScoresWithTheEmbeddedModel) {
  ChildProcess baton = Baton({"score", "--model", "embedded", "--ids", "641,643,494,551,541",
                              "--precision", "exact", "--json"});
  ASSERT_EQ(baton.Wait(), 0) << baton.error();
  const Json json = Json::parse(baton.output());
  EXPECT_EQ(json["tokens"], 5);
  ASSERT_EQ(json["token_logprobs"].size(), 5u);
  EXPECT_TRUE(json["token_logprobs"][0].is_null());
  for (size_t i = 1; i < 5; ++i) EXPECT_LT(json["token_logprobs"][i].get<double>(), 0);
}

TEST(Command, SampleCheckShowsEachStepOfTheChain) {
  ChildProcess baton =
      Baton({"sample-check", "--model", "embedded", "--prompt-ids", "641,643,494,551,541",
             "--temperature", "2", "--top-k", "3", "--logit-bias", "7=-1", "--top", "2", "--json"});
  ASSERT_EQ(baton.Wait(), 0) << baton.error();
  const Json json = Json::parse(baton.output());
  std::vector<std::string> names;
  for (const Json& step : json["steps"]) names.push_back(step["step"]);
  EXPECT_THAT(names, ::testing::ElementsAre("model", "logit bias", "temperature", "top-k"));
  EXPECT_EQ(json["steps"][3]["kept"], 3);
  EXPECT_EQ(json["steps"][3]["top"].size(), 2u);
  EXPECT_GT(json["steps"][0]["top"][0]["probability"], json["steps"][2]["top"][0]["probability"]);
}

TEST(Command, SampleCheckShowsWhatAConstraintLeaves) {
  const std::vector<std::string> check = {
      "sample-check",  "--model", "embedded", "--prompt-ids", "641,643,494",
      "--temperature", "1",       "--json",   "--top",        "1000"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), check.begin(), check.end());
    return Baton(flags);
  };
  ChildProcess digits = with({"--regex", "[0-9]+"});
  ASSERT_EQ(digits.Wait(), 0) << digits.error();
  const Json json = Json::parse(digits.output());
  ASSERT_EQ(json["steps"].size(), 3u);
  const Json& step = json["steps"][1];
  EXPECT_EQ(step["step"], "constraint");
  EXPECT_GT(step["kept"], 0);
  EXPECT_LT(step["kept"], json["steps"][0]["kept"]);
  for (const Json& token : step["top"]) {
    const auto text = token["text"].get<std::string>();
    EXPECT_EQ(text.find_first_not_of("0123456789"), std::string::npos) << token;
  }
  EXPECT_EQ(json["text"].get<std::string>().find_first_not_of("0123456789"), std::string::npos);

  ChildProcess two = with({"--regex", "a", "--json-mode", "object"});
  EXPECT_NE(two.Wait(), 0);
  EXPECT_THAT(two.error(), ::testing::HasSubstr("--json-mode and --regex: exactly one of"));
  ChildProcess wrong = with({"--regex", "(", "--outputs", "0"});
  EXPECT_NE(wrong.Wait(), 0);
  EXPECT_THAT(wrong.error(), ::testing::HasSubstr("--regex: "));
}

TEST(Command, BenchPrintsThePeersKeys) {
  ChildProcess baton = Baton({"bench", "model", "--model", "embedded", "--threads", "1", "--pp",
                              "8", "--tg", "2", "--batch", "1,2", "--reps", "1", "--json"});
  ASSERT_EQ(baton.Wait(), 0) << baton.error();
  const Json json = Json::parse(baton.output());
  EXPECT_EQ(json.size(), 3u);
  for (const char* key : {"prompt8", "decode1", "decode2"}) EXPECT_GT(json[key], 0) << key;
}

TEST(Command, BenchTellsSharesOfWhatTheMachineAllows) {
  ChildProcess model =
      Baton({"bench", "model", "--model", "embedded", "--threads", "1", "--pp", "8", "--tg", "2",
             "--batch", "1", "--reps", "1", "--shares", "--seconds", "0.01", "--json"});
  ASSERT_EQ(model.Wait(), 0) << model.error();
  const Json shares = Json::parse(model.output())["shares"]["decode1"];
  EXPECT_GT(shares["of_roofline"], 0);
  EXPECT_THAT(shares["limit"].get<std::string>(), ::testing::AnyOf("compute", "memory"));
  double sum = 0;
  for (const auto& [part, share] : shares["time"].items()) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 0.01);

  ChildProcess kernels = Baton({"bench", "kernels", "embedded", "--threads", "1", "--rows", "64",
                                "--seconds", "0.01", "--stream-mib", "4", "--json"});
  ASSERT_EQ(kernels.Wait(), 0) << kernels.error();
  const Json first = Json::parse(kernels.output().substr(0, kernels.output().find('\n')));
  EXPECT_EQ(first["rows"], 64);
  EXPECT_GT(first["share_of_peak"], 0);
  EXPECT_THAT(kernels.output(), HasSubstr("attention, decode"));

  ChildProcess machine =
      Baton({"bench", "machine", "--threads", "1", "--seconds", "0.01", "--json"});
  ASSERT_EQ(machine.Wait(), 0) << machine.error();
  const Json json = Json::parse(machine.output());
  EXPECT_GT(json["read_gb_per_s"]["memory"]["one_thread"], 0);
  EXPECT_EQ(json["memory_mode"], "one thread");
}

}  // namespace
}  // namespace baton
