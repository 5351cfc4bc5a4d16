// SPDX-License-Identifier: Apache-2.0
// What the transport's tests share: a receiver, a sender, and prompts' KV.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/log.h"
#include "common/kv/convert/layer_converter.h"
#include "common/transport/kv_transport.h"
#include "tests/common/transport/block_memory.h"
#include "tests/common/transport/child_process.h"
#include "tests/common/transport/fake_landing.h"

namespace baton::transport {

inline kv::KvLayout SmallLayout() {
  kv::KvLayout layout;
  layout.layers = 5;
  layout.kv_heads = 2;
  layout.head_dim = 16;
  layout.type = kv::KvType::kBf16;
  layout.slice_layout = "k-pairs-v-pairs/1";
  layout.model_fingerprint = "model-a";
  layout.compute_id = "ref";
  layout.numerics_id = "ref/1";
  return layout;
}

// In the layouts that all backends share, which can be converted.
inline kv::KvLayout SharedLayout(kv::KvType type) {
  kv::KvLayout layout = SmallLayout();
  layout.slice_layout = "k-pairs-v-pairs-bf16/1";
  layout = *kv::StoredAs(layout, type);
  layout.numerics_id = absl::StrCat("ref/1 ", std::string(kv::KvTypeName(type)));
  return layout;
}

// The outcome of one asynchronous call.
class Outcome {
 public:
  // A second call of it is a bug: the promise throws and ends the test.
  Done done() {
    return [promise = promise_](const absl::Status& status) { promise->set_value(status); };
  }
  absl::Status Wait(absl::Duration patience = kPatience) {
    if (!Ready(patience)) return absl::InternalError("no answer within the test's patience");
    return future_.get();
  }
  bool Ready(absl::Duration patience = absl::ZeroDuration()) {
    return future_.wait_for(absl::ToChronoNanoseconds(patience)) == std::future_status::ready;
  }

 private:
  std::shared_ptr<std::promise<absl::Status>> promise_ =
      std::make_shared<std::promise<absl::Status>>();
  std::shared_future<absl::Status> future_ = promise_->get_future().share();
};

// The KV of one prompt, its content a function of `seed`.
class PromptKv {
 public:
  PromptKv(const kv::KvLayout& layout, uint32_t blocks, uint64_t seed) : layout_(layout) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint32_t b = 0; b < blocks; ++b) {
      BlockBytes& block = blocks_.emplace_back(layout.BlockBytes(), std::byte{0});
      for (size_t at = 0; at < block.size(); at += sizeof(state)) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t mixed = state ^ state >> 32;
        std::memcpy(block.data() + at, &mixed, std::min(sizeof(mixed), block.size() - at));
      }
    }
  }

  uint32_t tokens() const { return static_cast<uint32_t>(blocks_.size()) * kv::kBlockTokens; }
  uint32_t count() const { return static_cast<uint32_t>(blocks_.size()); }
  PutRange all() const { return {0, layout_.layers, 0, count()}; }
  std::byte* slice(uint32_t block, uint32_t layer) {
    return blocks_[block].data() + layer * layout_.LayerBytes();
  }
  PutSources Sources(const PutRange& range) {
    std::vector<std::span<const std::byte>> sources;
    std::vector<uint32_t> checksums;
    for (uint32_t b = range.block_begin; b < range.block_end; ++b) {
      for (uint32_t l = range.layer_begin; l < range.layer_end; ++l) {
        sources.emplace_back(slice(b, l), layout_.LayerBytes());
        if (BlockMemory::Get().uses_pool()) checksums.push_back(Crc32c(sources.back()));
      }
    }
    return {std::move(sources), std::move(checksums)};
  }
  // What the blocks become when they are stored as `layout`.
  PromptKv StoredAs(const kv::KvLayout& layout) {
    PromptKv stored(layout, count(), 0);
    const auto converter = kv::LayerConverter::Create(layout_, layout);
    for (uint32_t b = 0; b < count(); ++b) {
      for (uint32_t l = 0; l < layout.layers; ++l) {
        converter->Convert(slice(b, l), stored.slice(b, l));
      }
    }
    return stored;
  }
  // Whether `landed` (blocks from `first` on) holds these bytes.
  bool Equals(const std::vector<std::byte*>& landed, uint32_t first = 0) const {
    if (landed.size() != blocks_.size() - first) return false;
    for (size_t i = 0; i < landed.size(); ++i) {
      const auto& block = blocks_[first + i];
      if (std::memcmp(block.data(), landed[i], block.size()) != 0) return false;
    }
    return true;
  }

 private:
  const kv::KvLayout layout_;
  std::vector<BlockBytes> blocks_;
};

inline std::string Key(uint64_t n) {
  std::string key = absl::StrCat("key-", n);
  key.resize(16, '.');
  return key;
}

// A folder of the test's own with a short path, gone at its end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = "/tmp/baton-kv-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Parameter: the transport's name.
class TransportTest : public ::testing::TestWithParam<std::string> {
 protected:
  TransportTest() {
    SetLogLevel(LogLevel::kError);
    setenv("BATON_NCCL_LIBRARY", BATON_FAKE_NCCL, 1);
    BlockMemory::Get().UsePool(GetParam() == "cuda_ipc");
  }

  // Of 640 KiB: several frames for each put.
  void UseLargeBlocks() {
    layout_.kv_heads = 8;
    layout_.head_dim = 128;
  }

  // Anew when one runs: what came before ends first.
  void StartReceiver(const std::string& tcp_address = "127.0.0.1:0") {
    sender_.reset();
    receiver_.reset();
    landing_ = std::make_unique<FakeLanding>(layout_);
    receiver_options_.receiver_id = "decode-1";
    receiver_options_.socket_dir = dir_.path();
    receiver_options_.tcp_address = tcp_address;
    receiver_options_.ucx = GetParam() == "ucx";
    receiver_options_.nccl = GetParam() == "nccl";
    if (GetParam() == "cuda_ipc") {
      receiver_options_.cuda_ipc = true;
      receiver_options_.device = "emulated";
      receiver_options_.pool = BlockMemory::Get().pool();
    }
    auto receiver = MakeReceiver(receiver_options_, layout_, landing_.get());
    ASSERT_TRUE(receiver.ok()) << receiver.status();
    receiver_ = *std::move(receiver);
  }
  void StartSender() {
    sender_options_.transports = {GetParam()};
    StartSenderKeepingTransports();
  }
  void StartSenderKeepingTransports() {
    sender_options_.sender_id = "prefill-1";
    if (GetParam() == "cuda_ipc") {
      sender_options_.device = "emulated";
      sender_options_.pool = BlockMemory::Get().pool();
      sender_options_.to_host = [](const auto&, const std::function<void()>& done) { done(); };
    }
    auto sender = MakeSender(sender_options_, sender_layout_.value_or(layout_));
    ASSERT_TRUE(sender.ok()) << sender.status();
    sender_ = *std::move(sender);
  }
  void Start() {
    StartReceiver();
    StartSender();
  }

  std::string Address() const {
    for (const Endpoint& endpoint : receiver_->endpoints()) {
      if (endpoint.transport == GetParam()) return endpoint.address;
    }
    return "";
  }

  std::unique_ptr<KvWriter> Open(uint64_t key, uint32_t tokens, Done granted,
                                 absl::Time deadline = absl::InfiniteFuture()) {
    return sender_->Open(receiver_->endpoints(), {Key(key), tokens}, deadline, std::move(granted));
  }
  std::unique_ptr<KvWriter> Open(uint64_t key, uint32_t tokens) {
    return Open(key, tokens, [](const absl::Status&) {});
  }

  // A whole hand-off: opens, puts everything, commits.
  absl::Status HandOver(uint64_t key, PromptKv& prompt) {
    const auto writer = Open(key, prompt.tokens());
    Outcome put, commit;
    writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
    writer->Commit({.first_tokens = {static_cast<TokenId>(key)}, .drawn = 1}, commit.done());
    return commit.Wait();
  }

  // A stopped process keeps its sockets open: nothing but the missing confirmation
  // tells. No commit comes while the receiver is, and the right bytes once it wakes.
  void ExpectWholeFromAFrozenReceiver() {
    const LinePipe address, verdict;
    PromptKv prompt(layout_, 16, 1);
    ChildProcess child([&] {
      StartReceiver();
      address.Write(Address());
      landing_->WaitCommitted(1);
      verdict.Write(prompt.Equals(landing_->blocks(1)) ? "equal" : "other bytes");
      pause();
    });
    const std::vector<Endpoint> endpoints = {{GetParam(), address.Read()}};
    StartSender();
    Outcome granted, commit;
    const auto writer =
        sender_->Open(endpoints, {Key(1), prompt.tokens()}, absl::InfiniteFuture(), granted.done());
    ASSERT_EQ(granted.Wait(), absl::OkStatus());
    child.Stop();
    writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
    writer->Commit({}, commit.done());
    EXPECT_FALSE(commit.Ready(2 * sender_options_.stall_limit));
    child.Signal(SIGCONT);
    EXPECT_EQ(commit.Wait(), absl::OkStatus());
    EXPECT_EQ(verdict.Read(), "equal");
  }

  TempDir dir_;
  kv::KvLayout layout_ = SmallLayout();
  std::optional<kv::KvLayout> sender_layout_;
  ReceiverOptions receiver_options_;
  SenderOptions sender_options_;
  std::unique_ptr<FakeLanding> landing_;
  std::unique_ptr<KvReceiver> receiver_;
  std::unique_ptr<KvSender> sender_;
};

// Those that carry KV between different types.
inline std::vector<std::string> ConvertingTransports() {
  std::vector<std::string> names = TransportNames();
  std::erase(names, "cuda_ipc");
  return names;
}

#define BATON_ALL_TRANSPORTS(suite)                                          \
  INSTANTIATE_TEST_SUITE_P(Kv, suite, ::testing::ValuesIn(TransportNames()), \
                           [](const auto& instance) { return instance.param; })

}  // namespace baton::transport
