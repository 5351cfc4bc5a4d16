// SPDX-License-Identifier: Apache-2.0
#include "router/pairing.h"

#include <gtest/gtest.h>

#include "tests/router/fakes.h"

namespace baton::router {
namespace {

constexpr auto kRun = Pairing::Outcome::kRun;
constexpr auto kBusy = Pairing::Outcome::kBusy;
constexpr auto kMissing = Pairing::Outcome::kMissing;
constexpr auto kImpossible = Pairing::Outcome::kImpossible;

class PairingTest : public ::testing::Test {
 protected:
  Worker& Add(const v1::WorkerMessage& hello) {
    const LinkId id = ++last_;
    directory_.Open(id, std::make_shared<FakeLink>(), absl::UnixEpoch());
    Worker& worker = *directory_.Find(id);
    EXPECT_TRUE(directory_.Attach(worker, hello.hello()).ok());
    return worker;
  }
  Worker& AddPrefill(const std::string& id, uint32_t blocks = 100) {
    return Add(MakeHello(id, v1::WORKER_ROLE_PREFILL, blocks));
  }
  Worker& AddDecode(const std::string& id, uint32_t blocks = 100) {
    return Add(MakeHello(id, v1::WORKER_ROLE_DECODE, blocks));
  }
  Pairing Choose(v1::Path path = v1::PATH_UNSPECIFIED,
                 TransportRule transport = TransportRule::kAuto) {
    return ChoosePair(directory_.Attached(), {50, 50, path, transport});
  }

  WorkerDirectory directory_;
  LinkId last_ = 0;
};

TEST_F(PairingTest, TakesThePrefillWorkerWithFewestPromptTokensBefore) {
  Worker& p1 = AddPrefill("p1");
  Worker& p2 = AddPrefill("p2");
  AddDecode("d");
  directory_.Assign(p1, 1, 0, 30);
  EXPECT_EQ(Choose().prefill, &p2);
  directory_.Assign(p2, 2, 0, 40);
  EXPECT_EQ(Choose().prefill, &p1);
}

TEST_F(PairingTest, CountsWhatOtherRoutersQueuedAsOfTheLastHeartbeat) {
  Worker& p1 = AddPrefill("p1");
  Worker& p2 = AddPrefill("p2");
  AddDecode("d");
  v1::Heartbeat beat;
  beat.mutable_load()->set_queued_prompt_tokens(500);
  directory_.Heartbeat(p1, beat);
  directory_.Assign(p2, 2, 0, 100);
  EXPECT_EQ(Choose().prefill, &p2);
}

TEST_F(PairingTest, TakesTheDecodeWorkerWithFewestSequencesThenMostFreeBlocks) {
  AddPrefill("p");
  Worker& small = AddDecode("d1", 50);
  Worker& large = AddDecode("d2", 90);
  EXPECT_EQ(Choose().decode, &large);
  directory_.Assign(large, 1, 10, 0);
  EXPECT_EQ(Choose().decode, &small);
}

TEST_F(PairingTest, DecodeWorkerWithoutRoomIsBusyUntilASequenceEnds) {
  AddPrefill("p");
  Worker& d = AddDecode("d", 15);
  const SequenceKey key = directory_.Assign(d, 1, 100, 0);  // 10 of 15 blocks, 6 needed
  EXPECT_EQ(Choose().outcome, kBusy);
  EXPECT_EQ(Choose(v1::PATH_LOCAL).outcome, kBusy);
  directory_.Release(key);
  EXPECT_EQ(Choose().outcome, kRun);
}

TEST_F(PairingTest, BlocksThatOthersHoldCountAndCachedOnesDoNot) {
  AddPrefill("p");
  Worker& d = AddDecode("d", 15);
  v1::Heartbeat beat;
  *beat.mutable_load() = d.load;
  beat.mutable_load()->set_kv_blocks_free(5);
  beat.mutable_load()->set_kv_blocks_reclaimable(10);
  directory_.Heartbeat(d, beat);
  EXPECT_EQ(Choose().outcome, kRun);
  beat.mutable_load()->set_kv_blocks_free(2);
  beat.mutable_load()->set_kv_blocks_reclaimable(3);
  directory_.Heartbeat(d, beat);
  EXPECT_EQ(Choose().outcome, kBusy);
}

TEST_F(PairingTest, MostSequencesOfAWorkerAreKept) {
  AddPrefill("p");
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_max_sequences(1);
  Worker& d = Add(hello);
  directory_.Assign(d, 1, 10, 0);
  EXPECT_EQ(Choose().outcome, kBusy);
}

// The last token's KV is never computed, so it needs no place.
TEST_F(PairingTest, RequestThatFillsAPoolToItsLastTokenIsTaken) {
  AddDecode("d", 10);
  EXPECT_EQ(ChoosePair(directory_.Attached(), {50, 51}).outcome, kRun);
  EXPECT_EQ(ChoosePair(directory_.Attached(), {100, 1}).outcome, kRun);
  EXPECT_EQ(ChoosePair(directory_.Attached(), {50, 52}).outcome, kImpossible);
  EXPECT_EQ(ChoosePair(directory_.Attached(), {101, 1}).outcome, kImpossible);
}

TEST_F(PairingTest, RequestBeyondEveryPoolIsImpossibleWithTheNumbers) {
  AddPrefill("p");
  AddDecode("d", 9);
  const Pairing pairing = Choose();
  EXPECT_EQ(pairing.outcome, kImpossible);
  EXPECT_NE(pairing.detail.find("50"), std::string::npos);
  EXPECT_NE(pairing.detail.find("90 tokens"), std::string::npos) << pairing.detail;
}

TEST_F(PairingTest, EqualNumericsAreRequiredForASplitAndNotForLocal) {
  AddPrefill("p");
  v1::WorkerMessage other = MakeHello("d", v1::WORKER_ROLE_DECODE);
  other.mutable_hello()->set_numerics_id("n2");
  Add(other);
  EXPECT_EQ(Choose(v1::PATH_SPLIT).outcome, kMissing);
  const Pairing local = Choose();
  EXPECT_EQ(local.outcome, kRun);
  EXPECT_EQ(local.prefill, nullptr);
  EXPECT_EQ(local.fallback, "incompatible_pair");
}

v1::WorkerMessage HelloOf(const std::string& id, v1::WorkerRole role, const std::string& kv_type) {
  v1::WorkerMessage message = MakeHello(id, role);
  message.mutable_hello()->set_compute_id("n");
  message.mutable_hello()->set_numerics_id("n " + kv_type);
  message.mutable_hello()->set_kv_type(kv_type);
  message.mutable_hello()->set_kv_convertible(true);
  return message;
}

TEST_F(PairingTest, OtherKvTypesPairWhereTheyCanBeConverted) {
  Worker& p = Add(HelloOf("p", v1::WORKER_ROLE_PREFILL, "bf16"));
  Worker& d = Add(HelloOf("d", v1::WORKER_ROLE_DECODE, "int8"));
  EXPECT_EQ(Choose(v1::PATH_SPLIT).decode, &d);
  const std::pair<const char*, void (*)(v1::Hello&)> changes[] = {
      {"other kernels", [](v1::Hello& h) { h.set_compute_id("m"); }},
      {"a worker that says nothing", [](v1::Hello& h) { h.clear_compute_id(); }},
      {"a layout of its own", [](v1::Hello& h) { h.set_kv_convertible(false); }},
      {"the same type in another revision", [](v1::Hello& h) { h.set_kv_type("bf16"); }}};
  for (const auto& [name, change] : changes) {
    const v1::Hello good = d.hello;
    change(d.hello);
    EXPECT_EQ(Choose(v1::PATH_SPLIT).outcome, kMissing) << name;
    d.hello = good;
  }
  p.hello.set_kv_convertible(false);
  EXPECT_EQ(Choose(v1::PATH_SPLIT).outcome, kMissing);
}

v1::WorkerMessage OfKernels(v1::WorkerMessage message, const std::string& kernels) {
  message.mutable_hello()->set_compute_id(kernels);
  message.mutable_hello()->set_numerics_id(kernels + " " + message.hello().kv_type());
  return message;
}

TEST_F(PairingTest, OtherKernelsPairWhereTheOperatorWantsIt) {
  Add(HelloOf("p", v1::WORKER_ROLE_PREFILL, "bf16"));
  Worker& d = Add(OfKernels(HelloOf("d", v1::WORKER_ROLE_DECODE, "bf16"), "gpu"));
  Need need{.prompt_tokens = 50, .max_tokens = 10, .path = v1::PATH_SPLIT};
  const auto choose = [&] { return ChoosePair(directory_.Attached(), need); };
  EXPECT_EQ(choose().outcome, kMissing);
  need.mixed_pairs = true;
  for (const char* type : {"bf16", "int8"}) {
    d.hello.set_kv_type(type);
    EXPECT_EQ(choose().decode, &d) << type;
    EXPECT_TRUE(choose().foreign_kv) << type;
  }
  const std::pair<const char*, void (*)(v1::Hello&)> changes[] = {
      {"another variant of the model", [](v1::Hello& h) { h.set_model_variant("decay-1"); }},
      {"a worker that says nothing", [](v1::Hello& h) { h.clear_compute_id(); }},
      {"a layout of its own", [](v1::Hello& h) { h.set_kv_convertible(false); }}};
  for (const auto& [name, change] : changes) {
    const v1::Hello good = d.hello;
    change(d.hello);
    EXPECT_EQ(choose().outcome, kMissing) << name;
    d.hello = good;
  }
}

TEST_F(PairingTest, MixedPairsComeLast) {
  Worker& p1 = Add(HelloOf("p1", v1::WORKER_ROLE_PREFILL, "bf16"));
  Worker& p2 = Add(OfKernels(HelloOf("p2", v1::WORKER_ROLE_PREFILL, "bf16"), "gpu"));
  Worker& p3 = Add(OfKernels(HelloOf("p3", v1::WORKER_ROLE_PREFILL, "int8"), "gpu"));
  Add(OfKernels(HelloOf("d", v1::WORKER_ROLE_DECODE, "int8"), "gpu"));
  directory_.Assign(p3, 1, 10, 90);  // the busiest
  directory_.Assign(p2, 2, 10, 50);
  const Need need{
      .prompt_tokens = 50, .max_tokens = 10, .path = v1::PATH_SPLIT, .mixed_pairs = true};
  const auto choose = [&] { return ChoosePair(directory_.Attached(), need); };
  EXPECT_EQ(choose().prefill, &p3);
  EXPECT_FALSE(choose().foreign_kv);
  p3.draining = true;
  EXPECT_EQ(choose().prefill, &p2);
  EXPECT_TRUE(choose().foreign_kv);
  p2.draining = true;
  EXPECT_EQ(choose().prefill, &p1);
  EXPECT_TRUE(choose().foreign_kv);
}

TEST_F(PairingTest, EqualNumericsComeBeforeConversion) {
  Add(HelloOf("p1", v1::WORKER_ROLE_PREFILL, "bf16"));
  Worker& p2 = Add(HelloOf("p2", v1::WORKER_ROLE_PREFILL, "int8"));
  Worker& d = Add(HelloOf("d", v1::WORKER_ROLE_DECODE, "int8"));
  directory_.Assign(p2, 1, 10, 50);  // busier
  Pairing pairing = Choose();
  EXPECT_EQ(pairing.prefill, &p2);
  EXPECT_EQ(pairing.decode, &d);
  p2.draining = true;
  pairing = Choose();
  EXPECT_EQ(pairing.prefill->id(), "p1");
  EXPECT_EQ(pairing.decode, &d);
}

TEST_F(PairingTest, WithoutAPrefillWorkerAnUnspecifiedPathFallsBackAndSaysSo) {
  Worker& d = AddDecode("d");
  const Pairing local = Choose();
  EXPECT_EQ(local.decode, &d);
  EXPECT_EQ(local.fallback, "no_prefill_worker");
  EXPECT_EQ(Choose(v1::PATH_LOCAL).fallback, "");
  EXPECT_EQ(Choose(v1::PATH_SPLIT).detail, "no prefill worker is attached");
}

TEST_F(PairingTest, WithoutADecodeWorkerNothingRuns) {
  AddPrefill("p");
  EXPECT_EQ(Choose().outcome, kMissing);
  EXPECT_EQ(Choose().detail, "no decode worker is attached");
}

TEST_F(PairingTest, DrainingWorkersGetNothing) {
  AddPrefill("p").draining = true;
  AddDecode("d1").draining = true;
  Worker& d2 = AddDecode("d2");
  const Pairing local = Choose();
  EXPECT_EQ(local.prefill, nullptr);
  EXPECT_EQ(local.decode, &d2);
}

TEST_F(PairingTest, OffersSharedMemoryFirstAndOnlyOnOneHost) {
  AddPrefill("p");
  Worker& d = AddDecode("d");
  Pairing pairing = Choose();
  ASSERT_EQ(pairing.endpoints.size(), 2u);
  EXPECT_EQ(pairing.endpoints[0].transport(), "shm");
  EXPECT_EQ(pairing.endpoints[1].transport(), "tcp");

  d.hello.set_host_id("elsewhere");
  pairing = Choose();
  ASSERT_EQ(pairing.endpoints.size(), 1u);
  EXPECT_EQ(pairing.endpoints[0].transport(), "tcp");
  EXPECT_EQ(Choose(v1::PATH_SPLIT, TransportRule::kShm).outcome, kMissing);
}

TEST_F(PairingTest, TransportRuleRestrictsWhatIsOffered) {
  AddPrefill("p");
  AddDecode("d");
  for (const auto& [rule, name] :
       {std::pair{TransportRule::kShm, "shm"}, {TransportRule::kTcp, "tcp"}}) {
    const Pairing pairing = Choose(v1::PATH_SPLIT, rule);
    ASSERT_EQ(pairing.endpoints.size(), 1u);
    EXPECT_EQ(pairing.endpoints[0].transport(), name);
  }
}

TEST_F(PairingTest, UcxAndNcclAreOfferedInThatOrderBeforeTcpWhereBothWorkersHaveThem) {
  v1::WorkerMessage prefill = MakeHello("p", v1::WORKER_ROLE_PREFILL);
  v1::WorkerMessage decode = MakeHello("d", v1::WORKER_ROLE_DECODE);
  decode.mutable_hello()->set_host_id("elsewhere");
  for (const char* name : {"nccl", "ucx"}) {
    prefill.mutable_hello()->add_transports(name);
    v1::HandoffEndpoint* endpoint = decode.mutable_hello()->add_handoff_endpoints();
    endpoint->set_transport(name);
    endpoint->set_address("10.0.0.2:7000");
  }
  Add(prefill);
  Add(decode);
  const Pairing all = Choose();
  ASSERT_EQ(all.endpoints.size(), 3u);
  EXPECT_EQ(all.endpoints[0].transport(), "ucx");
  EXPECT_EQ(all.endpoints[1].transport(), "nccl");
  EXPECT_EQ(all.endpoints[2].transport(), "tcp");
  for (const auto& [rule, name] :
       {std::pair{TransportRule::kUcx, "ucx"}, {TransportRule::kNccl, "nccl"}}) {
    const Pairing only = Choose(v1::PATH_SPLIT, rule);
    ASSERT_EQ(only.endpoints.size(), 1u);
    EXPECT_EQ(only.endpoints[0].transport(), name);
  }
}

TEST_F(PairingTest, CudaIpcIsOfferedFirstAndOnOneHostAlone) {
  v1::WorkerMessage prefill = MakeHello("p", v1::WORKER_ROLE_PREFILL);
  prefill.mutable_hello()->add_transports("cuda_ipc");
  Add(prefill);
  const auto add_decode = [&](const char* name, bool same_host) {
    v1::WorkerMessage decode = MakeHello(name, v1::WORKER_ROLE_DECODE);
    if (!same_host) decode.mutable_hello()->set_host_id("elsewhere");
    v1::HandoffEndpoint* endpoint = decode.mutable_hello()->add_handoff_endpoints();
    endpoint->set_transport("cuda_ipc");
    endpoint->set_address("/run/kv.sock");
    Add(decode);
  };
  add_decode("far", false);
  EXPECT_NE(Choose().endpoints.at(0).transport(), "cuda_ipc");
  add_decode("a-near", true);  // chosen by its name
  const Pairing near = Choose();
  ASSERT_EQ(near.endpoints.size(), 3u);
  EXPECT_EQ(near.endpoints[0].transport(), "cuda_ipc");
  EXPECT_EQ(near.endpoints[1].transport(), "shm");
  const Pairing only = Choose(v1::PATH_SPLIT, TransportRule::kCudaIpc);
  ASSERT_EQ(only.endpoints.size(), 1u);
  EXPECT_EQ(only.endpoints[0].transport(), "cuda_ipc");
}

TEST_F(PairingTest, TransportsThePrefillWorkerLacksAreNotOffered) {
  v1::WorkerMessage hello = MakeHello("p", v1::WORKER_ROLE_PREFILL);
  hello.mutable_hello()->clear_transports();
  hello.mutable_hello()->add_transports("tcp");
  Add(hello);
  AddDecode("d");
  const Pairing pairing = Choose();
  ASSERT_EQ(pairing.endpoints.size(), 1u);
  EXPECT_EQ(pairing.endpoints[0].transport(), "tcp");
}

TEST(WorkerDirectory, AddressThatNobodyCanDialIsRefused) {
  WorkerDirectory directory;
  directory.Open(1, std::make_shared<FakeLink>(), absl::UnixEpoch());
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->mutable_handoff_endpoints(0)->set_address("0.0.0.0:7000");
  const absl::Status status = directory.Attach(*directory.Find(1), hello.hello());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("0.0.0.0:7000"), std::string::npos) << status;
}

TEST(WorkerDirectory, AccountsReturnToZero) {
  WorkerDirectory directory;
  directory.Open(1, std::make_shared<FakeLink>(), absl::UnixEpoch());
  Worker& worker = *directory.Find(1);
  ASSERT_TRUE(directory.Attach(worker, MakeHello("d", v1::WORKER_ROLE_DECODE).hello()).ok());
  const SequenceKey a = directory.Assign(worker, 1, 25, 20);
  const SequenceKey b = directory.Assign(worker, 2, 10, 10);
  EXPECT_EQ(worker.own_blocks, 4u);
  EXPECT_EQ(worker.own_prompt_tokens, 30u);
  directory.FirstToken(a);
  directory.FirstToken(a);
  EXPECT_EQ(worker.own_prompt_tokens, 10u);
  directory.Release(a);
  directory.Release(b);
  directory.Release(b);
  EXPECT_EQ(worker.own_blocks, 0u);
  EXPECT_EQ(worker.own_prompt_tokens, 0u);
  EXPECT_EQ(worker.own_sequences, 0u);
}

// A millisecond per prompt token on both, whose costs are known.
class ChoiceOfPath : public PairingTest {
 protected:
  void SetUp() override {
    AddPrefill("p").load.mutable_costs()->set_prompt_token(1e-3);
    AddDecode("d").load.mutable_costs()->set_prompt_token(1e-3);
  }
  Pairing Choose(uint64_t prompt, absl::Duration stall = absl::Milliseconds(20)) {
    return ChoosePair(directory_.Attached(), {.prompt_tokens = prompt,
                                              .max_tokens = 10,
                                              .local_stall = stall,
                                              .handoff = absl::Milliseconds(5)});
  }
};

TEST_F(ChoiceOfPath, ShortPromptSkipsTheSplitAndSaysWhy) {
  const Pairing pairing = Choose(15);
  EXPECT_EQ(pairing.prefill, nullptr);
  EXPECT_EQ(pairing.decode->id(), "d");
  EXPECT_EQ(pairing.reason, "predicted");
  EXPECT_LT(pairing.predicted_local, pairing.predicted_split);
  EXPECT_TRUE(pairing.fallback.empty());
}

TEST_F(ChoiceOfPath, PromptThatWouldHoldStreamsUpIsSplit) {
  EXPECT_NE(Choose(20).prefill, nullptr);
  EXPECT_EQ(Choose(20).reason, "predicted");
  EXPECT_EQ(Choose(20, absl::Milliseconds(21)).prefill, nullptr);
  EXPECT_NE(Choose(1, absl::ZeroDuration()).prefill, nullptr);
}

TEST_F(ChoiceOfPath, BusyDecodeWorkerLeavesThePromptToThePrefillWorker) {
  directory_.Find(2)->foreign_prompt_tokens = 6;
  EXPECT_NE(Choose(15).prefill, nullptr);
}

TEST_F(ChoiceOfPath, WithoutMeasurementsItIsSplit) {
  directory_.Find(1)->load.clear_costs();
  const Pairing pairing = Choose(15);
  EXPECT_NE(pairing.prefill, nullptr);
  EXPECT_EQ(pairing.reason, "unknown_costs");
}

TEST_F(PairingTest, CreditOfADecodeWorkerIsNotOverdrawn) {
  AddPrefill("p");
  Worker& d = AddDecode("d");
  v1::Heartbeat beat;
  beat.set_kv_credit_blocks(12);  // of 100: others have the rest
  directory_.Heartbeat(d, beat);
  // 51 tokens each, the prompt and one more: 6 blocks of 10.
  EXPECT_EQ(Choose().outcome, kRun);
  const SequenceKey first = directory_.Assign(d, 1, 51, 0);
  EXPECT_EQ(Choose().outcome, kRun);
  directory_.Resize(first, 60);
  EXPECT_EQ(Choose().outcome, kRun) << "six blocks still";
  directory_.Resize(first, 61);
  EXPECT_EQ(d.own_blocks, 7u);
  EXPECT_EQ(Choose().outcome, kBusy);
  directory_.Release(first);
  EXPECT_EQ(d.own_blocks, 0u);
  EXPECT_EQ(Choose().outcome, kRun);
}

v1::WorkerMessage HelloOfWindows(const std::string& id, v1::WorkerRole role, bool windows,
                                 uint32_t blocks = 100) {
  v1::WorkerMessage message = MakeHello(id, role, blocks);
  message.mutable_hello()->set_windows(windows);
  message.mutable_hello()->set_sparse_windows(windows);
  return message;
}

TEST_F(PairingTest, WindowsGoToWorkersThatTakeThem) {
  Add(HelloOfWindows("d1", v1::WORKER_ROLE_DECODE, false));
  Need need{50, 50};
  need.window = {.tokens = 64};
  Pairing pairing = ChoosePair(directory_.Attached(), need);
  EXPECT_EQ(pairing.outcome, kImpossible);
  EXPECT_EQ(pairing.field, "window");
  EXPECT_EQ(pairing.detail, "is 64; no decode worker here takes sequences with a window");
  Worker& d2 = Add(HelloOfWindows("d2", v1::WORKER_ROLE_DECODE, true));
  Add(HelloOfWindows("p1", v1::WORKER_ROLE_PREFILL, false));
  pairing = ChoosePair(directory_.Attached(), need);
  EXPECT_EQ(pairing.outcome, kRun);
  EXPECT_EQ(pairing.decode, &d2);
  EXPECT_EQ(pairing.fallback, "incompatible_pair");
  need.path = v1::PATH_SPLIT;
  pairing = ChoosePair(directory_.Attached(), need);
  EXPECT_EQ(pairing.outcome, kImpossible);
  EXPECT_EQ(pairing.detail, "is 64; no prefill worker here takes sequences with a window");
  Worker& p2 = Add(HelloOfWindows("p2", v1::WORKER_ROLE_PREFILL, true));
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).prefill, &p2);
}

// A worker of an older version would leave the stride out without a word.
TEST_F(PairingTest, SparseWindowsGoToWorkersThatKnowThem) {
  v1::WorkerMessage hello = HelloOfWindows("d1", v1::WORKER_ROLE_DECODE, true);
  hello.mutable_hello()->set_sparse_windows(false);
  Add(hello);
  Need need{50, 50};
  need.window = {.tokens = 64, .stride = 128};
  const Pairing pairing = ChoosePair(directory_.Attached(), need);
  EXPECT_EQ(pairing.outcome, kImpossible);
  EXPECT_EQ(pairing.field, "window");
  EXPECT_EQ(pairing.detail,
            "is 64; no decode worker here takes sequences with a window that has a stride or "
            "ranges to keep");
  Worker& d2 = Add(HelloOfWindows("d2", v1::WORKER_ROLE_DECODE, true));
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).decode, &d2);
}

TEST_F(PairingTest, WindowLetsAnAnswerOutgrowThePool) {
  Add(HelloOfWindows("d", v1::WORKER_ROLE_DECODE, true, 15));  // 150 tokens
  Need need{50, 1000};
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, kImpossible);
  need.window = {.tokens = 64, .sinks = 32};
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, kRun);
  need.window = {.tokens = 96, .sinks = 32};
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, kImpossible);
}

}  // namespace
}  // namespace baton::router
