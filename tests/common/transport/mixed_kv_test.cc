// SPDX-License-Identifier: Apache-2.0
// Hand-offs between workers that store KV in different types, and KV that is
// another type on its way.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "common/transport/fault/fault_sender.h"
#include "tests/common/transport/raw_sender.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

using kv::KvType;

constexpr KvType kTypes[] = {KvType::kF32, KvType::kBf16, KvType::kInt8};
constexpr std::optional<KvType> kWires[] = {std::nullopt, KvType::kInt8};

class MixedKv : public TransportTest {
 protected:
  void Start(KvType sender, KvType receiver, std::optional<KvType> wire) {
    layout_ = SharedLayout(receiver);
    sender_layout_ = SharedLayout(sender);
    sender_options_.wire = wire;
    TransportTest::Start();
  }
  KvType OnWire() const { return sender_options_.wire.value_or(sender_layout_->type); }
};

TEST_P(MixedKv, BlocksHoldTheConvertedKvAndTheWireCarriesItsType) {
  for (const KvType sender : kTypes) {
    for (const KvType receiver : kTypes) {
      for (const std::optional<KvType> wire : kWires) {
        Start(sender, receiver, wire);
        PromptKv prompt(*sender_layout_, 7, 1);
        const auto writer = Open(1, prompt.tokens());
        Outcome commit;
        writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
        writer->Commit({}, commit.done());
        ASSERT_EQ(commit.Wait(), absl::OkStatus());
        const kv::KvLayout travels = SharedLayout(OnWire());
        EXPECT_EQ(writer->bytes(), 7 * travels.BlockBytes());
        EXPECT_TRUE(prompt.StoredAs(travels).StoredAs(layout_).Equals(landing_->blocks(1)))
            << kv::KvTypeName(sender) << " to " << kv::KvTypeName(receiver) << " over "
            << kv::KvTypeName(travels.type);
        const bool same = sender == receiver && OnWire() == sender;
        EXPECT_EQ(landing_->last_origin(), same ? kv::KvOrigin::kOwn : kv::KvOrigin::kConverted);
      }
    }
  }
}

TEST_P(MixedKv, AnyOrderOfPutsAndSizeOfRingGivesTheSameBytes) {
  std::mt19937 random(11);
  const auto draw = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  };
  for (int round = 0; round < 8; ++round) {
    layout_ = SharedLayout(kTypes[round % 3]);
    sender_layout_ = SharedLayout(kTypes[(round + 1 + round / 3) % 3]);
    sender_options_.wire = kWires[round % 2];
    for (kv::KvLayout* layout : {&layout_, &*sender_layout_}) {
      layout->layers = 1 + round;
      layout->head_dim = 16 * (1 + round % 5);
      layout->kv_heads = 1 + round % 3;
    }
    sender_options_.ring_bytes = sender_layout_->LayerBytes() * draw(1, 12);
    StartReceiver();
    StartSender();
    PromptKv prompt(*sender_layout_, draw(1, 12), round);
    const auto writer = Open(round, prompt.tokens());
    std::vector<PutRange> ranges;
    const uint32_t layer_step = draw(1, layout_.layers), block_step = draw(1, prompt.count());
    for (uint32_t l = 0; l < layout_.layers; l += layer_step) {
      for (uint32_t b = 0; b < prompt.count(); b += block_step) {
        ranges.push_back({l, std::min(l + layer_step, layout_.layers), b,
                          std::min(b + block_step, prompt.count())});
      }
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    // The first comes twice, as after a lost answer: it lands once.
    ranges.push_back(ranges.front());
    for (const PutRange& range : ranges) {
      writer->Put(range, prompt.Sources(range), [](const absl::Status&) {});
    }
    Outcome commit;
    writer->Commit({}, commit.done());
    EXPECT_EQ(commit.Wait(), absl::OkStatus());
    kv::KvLayout travels = *kv::StoredAs(*sender_layout_, OnWire());
    EXPECT_TRUE(prompt.StoredAs(travels).StoredAs(layout_).Equals(landing_->blocks(1)))
        << "round " << round;
  }
}

TEST_P(MixedKv, BytesThatChangeOnTheWayAreRefused) {
  for (const std::optional<KvType> wire : kWires) {
    Start(KvType::kBf16, KvType::kInt8, wire);
    auto faulty = MakeFaultySender(std::move(sender_), {.corrupt_frame = 1});
    ASSERT_TRUE(faulty.ok()) << faulty.status();
    sender_ = *std::move(faulty);
    PromptKv prompt(*sender_layout_, 3, 1);
    EXPECT_EQ(HandOver(1, prompt).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(landing_->WaitAborted(1));
    EXPECT_EQ(landing_->committed(), 0u);
  }
}

TEST_P(MixedKv, TypesOfForeignLayoutsAreRefusedNamingThem) {
  layout_ = SharedLayout(KvType::kBf16);
  StartReceiver();
  sender_layout_ = SharedLayout(KvType::kF32);
  sender_layout_->slice_layout = "tiles/1";
  StartSender();
  Outcome granted;
  const auto writer = Open(1, 64, granted.done());
  const absl::Status status = granted.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("type: ours is bf16, theirs is f32"), absl::string_view::npos);
  EXPECT_NE(status.message().find("tiles/1"), absl::string_view::npos);
  // Nor can such blocks be sent as another type.
  sender_options_.wire = KvType::kInt8;
  sender_options_.transports = {GetParam()};
  EXPECT_EQ(MakeSender(sender_options_, *sender_layout_).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// The landing decides whether it takes them.
TEST_P(MixedKv, KvOfOtherKernelsComesWithItsOrigin) {
  for (const KvType sender : {KvType::kBf16, KvType::kInt8}) {
    layout_ = SharedLayout(KvType::kBf16);
    StartReceiver();
    sender_layout_ = SharedLayout(sender);
    sender_layout_->compute_id = "avx512";
    sender_layout_->numerics_id = "avx512 kv";
    StartSender();
    PromptKv prompt(*sender_layout_, 3, 1);
    ASSERT_EQ(HandOver(1, prompt), absl::OkStatus());
    EXPECT_EQ(landing_->last_origin(), kv::KvOrigin::kMixed);
    EXPECT_TRUE(prompt.StoredAs(layout_).Equals(landing_->blocks(1)));
  }
}

TEST_P(MixedKv, AnotherModelIsRefusedWhateverTheTypes) {
  const std::pair<const char*, void (*)(kv::KvLayout&)> changes[] = {
      {"model_variant", [](kv::KvLayout& l) { l.model_variant = "decay-1"; }},
      {"model_fingerprint", [](kv::KvLayout& l) { l.model_fingerprint = "model-b"; }},
      {"head_dim", [](kv::KvLayout& l) { l.head_dim = 32; }}};
  layout_ = SharedLayout(KvType::kInt8);
  StartReceiver();
  for (const auto& [field, change] : changes) {
    sender_layout_ = SharedLayout(KvType::kBf16);
    change(*sender_layout_);
    StartSender();
    Outcome granted;
    const auto writer = Open(1, 64, granted.done());
    EXPECT_NE(granted.Wait().message().find(field), absl::string_view::npos) << field;
  }
}

TEST_P(MixedKv, WireTypeThatTheReceiverCannotReadIsRefused) {
  layout_ = SharedLayout(KvType::kBf16);
  StartReceiver();
  const std::pair<const char*, const char*> wires[] = {
      {"int4", "k-columns-v-rows-int8-hadamard/1"}, {"int8", "tiles/1"}, {"bf16", "tiles/1"}};
  for (const auto& [type, slices] : wires) {
    RawSender sender({GetParam(), Address()});
    baton::v1::HandoffFrame hello = sender.Hello(layout_);
    hello.mutable_hello()->set_wire_kv_type(type);
    hello.mutable_hello()->set_wire_slice_layout(slices);
    sender.SendHello(hello);
    const auto refused = sender.ReadUntil(baton::v1::HandoffFrame::kRefused);
    EXPECT_EQ(refused.refused().code(), static_cast<int>(absl::StatusCode::kFailedPrecondition))
        << type;
    EXPECT_TRUE(sender.ReadsEnd());
  }
}

TEST_P(MixedKv, PutOfAnotherSizeThanTheWireTypesIsRefused) {
  layout_ = SharedLayout(KvType::kBf16);
  StartReceiver();
  const kv::KvLayout wire = SharedLayout(KvType::kInt8);
  RawSender sender({GetParam(), Address()});
  baton::v1::HandoffFrame hello = sender.Hello(layout_);
  hello.mutable_hello()->set_wire_kv_type("int8");
  hello.mutable_hello()->set_wire_slice_layout(wire.slice_layout);
  sender.SendHello(hello);
  ASSERT_EQ(sender.ReadUntil(baton::v1::HandoffFrame::kWelcome).frame_case(),
            baton::v1::HandoffFrame::kWelcome);
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  const std::string bytes(layout_.BlockBytes(), 'x');  // as if it were bf16
  sender.SendPut(sender.MakePut(granted, {0, layout_.layers, 0, 1}, bytes), bytes);
  const auto refused = sender.ReadUntil(baton::v1::HandoffFrame::kRefused);
  EXPECT_EQ(refused.refused().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(landing_->WaitAborted(1));
}

INSTANTIATE_TEST_SUITE_P(Kv, MixedKv, ::testing::ValuesIn(ConvertingTransports()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace baton::transport
