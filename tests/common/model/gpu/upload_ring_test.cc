// SPDX-License-Identifier: Apache-2.0
// Bytes through the ring's few slots.
#include "common/model/gpu/upload_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "tests/testing/test_data.h"

namespace baton::model::gpu {
namespace {

class UploadRingTest : public ::testing::Test {
 protected:
  UploadRingTest() {
    auto opened = Device::Open(*ParseDevice(baton::testing::TestDevice()));
    if (opened.ok()) device_ = *std::move(opened);
  }

  std::vector<std::byte> Read(const Buffer& buffer) {
    std::vector<std::byte> bytes(buffer.bytes());
    if (bytes.empty()) return bytes;
    device_->table().copy_out(bytes.data(), buffer.data(), bytes.size(), device_->stream());
    EXPECT_TRUE(device_->Finish().ok());
    return bytes;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(UploadRingTest, MoreThanTheRingHoldsArrivesInOrder) {
  ASSERT_NE(device_, nullptr);
  constexpr size_t kSlot = 1024;
  for (const size_t bytes : {size_t{0}, size_t{1}, kSlot, 3 * kSlot, 7 * kSlot + 5}) {
    auto ring = UploadRing::Create(*device_, kSlot);
    auto buffer = device_->Allocate(bytes, "a test");
    ASSERT_TRUE(ring.ok() && buffer.ok());
    EXPECT_EQ((*ring)->slot_bytes(), kSlot);
    std::vector<std::byte> sent(bytes);
    for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 256);
    ASSERT_TRUE((*ring)->Copy(buffer->data(), sent).ok());
    ASSERT_TRUE((*ring)->Finish().ok());
    EXPECT_EQ(Read(*buffer), sent);
  }
}

TEST_F(UploadRingTest, SlotsAreUsedInTurnAndWhatFollowsFindsTheirBytes) {
  ASSERT_NE(device_, nullptr);
  constexpr size_t kSlot = 256, kTimes = 3 * UploadRing::kSlots;
  auto ring = UploadRing::Create(*device_, kSlot);
  auto buffer = device_->Allocate(kSlot * kTimes, "a test");
  ASSERT_TRUE(ring.ok() && buffer.ok());
  std::vector<std::byte*> hosts;
  for (size_t i = 0; i < kTimes; ++i) {
    const auto host = (*ring)->Next();
    ASSERT_TRUE(host.ok());
    hosts.push_back(host->data());
    std::memset(host->data(), static_cast<int>(i + 1), kSlot);
    const std::byte* sent = (*ring)->Send(kSlot);
    device_->table().copy_blocks(
        {sent, buffer->data() + i * kSlot, nullptr, nullptr, 0, 0, 0, 0, kSlot, 1},
        (*ring)->stream());
  }
  ASSERT_TRUE((*ring)->Finish().ok());
  const std::vector<std::byte> bytes = Read(*buffer);
  for (size_t i = 0; i < kTimes; ++i) {
    EXPECT_EQ(bytes[i * kSlot], static_cast<std::byte>(i + 1));
    EXPECT_EQ(bytes[(i + 1) * kSlot - 1], static_cast<std::byte>(i + 1));
    if (i >= UploadRing::kSlots) {
      EXPECT_EQ(hosts[i], hosts[i - UploadRing::kSlots]);
    }
  }
}

TEST_F(UploadRingTest, SlotsThatDoNotFitAreRefusedWithTheNumbers) {
  if (baton::testing::TestDevice() != "emulated") GTEST_SKIP() << "knows the emulator's memory";
  ASSERT_NE(device_, nullptr);
  const auto ring = UploadRing::Create(*device_, size_t{5} << 30);
  EXPECT_EQ(ring.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(ring.status().message().find("5120.0 MiB"), std::string::npos) << ring.status();
}

}  // namespace
}  // namespace baton::model::gpu
