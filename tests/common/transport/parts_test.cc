// SPDX-License-Identifier: Apache-2.0
// The transport's small parts by themselves.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <random>

#include "common/base/crc32c.h"
#include "common/transport/event_loop.h"
#include "common/transport/frame.h"
#include "common/transport/ring_space.h"
#include "common/transport/slice_digest.h"

namespace baton::transport {
namespace {

TEST(CrcJoiner, JoinedChecksumIsThatOfTheWhole) {
  std::mt19937 random(3);
  for (const size_t slice : {1u, 7u, 64u, 4096u, 24576u}) {
    std::vector<std::byte> bytes(5 * slice);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const CrcJoiner joiner(slice);
    uint32_t joined = 0;
    for (size_t i = 0; i < 5; ++i) {
      joined = joiner.Join(joined, Crc32c(std::span(bytes).subspan(i * slice, slice)));
    }
    EXPECT_EQ(joined, Crc32c(bytes)) << slice;
  }
}

TEST(DigestShare, SlicesThatChangePlacesChangeTheDigest) {
  EXPECT_NE(DigestShare(0, 1, 7) ^ DigestShare(1, 0, 9),
            DigestShare(0, 1, 9) ^ DigestShare(1, 0, 7));
  EXPECT_NE(DigestShare(0, 0, 7), DigestShare(0, 0, 8));
  EXPECT_NE(DigestShare(0, 1, 7), DigestShare(1, 0, 7));
}

TEST(Ring, RangesNeverOverlapNorWrap) {
  RingSpace ring(4096);
  std::mt19937 random(5);
  std::deque<std::pair<uint64_t, uint64_t>> out;  // offset, bytes
  size_t wraps = 0, full = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bytes = 1 + random() % 1500;
    const bool had_room = ring.HasRoom(bytes);
    const auto offset = ring.Allocate(bytes);
    ASSERT_EQ(had_room, offset.has_value());
    if (offset) {
      ASSERT_LE(*offset + bytes, ring.size());
      for (const auto& [other, size] : out) {
        ASSERT_TRUE(*offset + bytes <= other || other + size <= *offset);
      }
      if (!out.empty() && *offset < out.back().first) ++wraps;
      out.emplace_back(*offset, bytes);
      continue;
    }
    ++full;
    ASSERT_FALSE(out.empty()) << "an empty ring has room for whatever fits";
    ASSERT_TRUE(ring.Release(out.front().second).ok());
    out.pop_front();
  }
  EXPECT_GT(wraps, 100u);
  EXPECT_GT(full, 100u);
}

TEST(Ring, ReleaseOfWhatWasNotAllocatedIsAnError) {
  RingSpace ring(4096);
  EXPECT_FALSE(ring.Release(1).ok());
  ASSERT_TRUE(ring.Allocate(100));
  EXPECT_FALSE(ring.Release(99).ok());
  ASSERT_TRUE(ring.Allocate(50));
  EXPECT_TRUE(ring.Release(150).ok()) << "several at once";
  EXPECT_EQ(ring.outstanding(), 0u);
  EXPECT_FALSE(ring.Allocate(4097));
  EXPECT_TRUE(ring.Allocate(4096));
}

TEST(Frame, RefusalKeepsCodeAndReadableMessage) {
  const auto frame =
      RefusedFrame(7, absl::NotFoundError("caf\xc3\xa9 \xff" + std::string(5000, 'x')));
  EXPECT_EQ(frame.refused().transfer(), 7u);
  const absl::Status back = StatusOf(frame.refused());
  EXPECT_EQ(back.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(back.message().substr(0, 7), "caf?? ?");
  EXPECT_LE(back.message().size(), 1024u);
  baton::v1::Refused odd;
  for (const int code : {0, -1, 17, 1 << 30}) {
    odd.set_code(code);
    EXPECT_EQ(StatusOf(odd).code(), absl::StatusCode::kUnknown) << code;
  }
}

// Runs `body` on a loop and waits for it.
void OnLoop(EventLoop& loop, const std::function<void()>& body) {
  std::promise<void> ran;
  ASSERT_TRUE(loop.Post([&] {
    body();
    ran.set_value();
  }));
  ran.get_future().wait();
}

TEST(EventLoop, TimersRunInOrderOfTimeAndCancelledOnesDoNot) {
  const auto loop = EventLoop::Make("test").value();
  std::vector<int> order;
  std::promise<void> last;
  OnLoop(*loop, [&] {
    loop->After(absl::Milliseconds(20), [&] { last.set_value(); });
    loop->After(absl::Milliseconds(10), [&] { order.push_back(2); });
    loop->After(absl::ZeroDuration(), [&] { order.push_back(1); });
    loop->Cancel(loop->After(absl::Milliseconds(5), [&] { order.push_back(9); }));
    loop->After(absl::InfiniteDuration(), [&] { order.push_back(9); });
  });
  last.get_future().wait();
  loop->Stop();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(EventLoop, HandlerRemovedByAnotherOfTheSameTurnDoesNotRun) {
  const auto loop = EventLoop::Make("test").value();
  std::array<std::array<int, 2>, 2> pairs;
  for (auto& pair : pairs) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
  }
  int runs = 0;
  OnLoop(*loop, [&] {
    static std::array<uint64_t, 2> watches;
    for (size_t i = 0; i < 2; ++i) {
      watches[i] = loop->Watch(pairs[i][0], 1 /* EPOLLIN */, [&](uint32_t) {
        ++runs;
        for (const uint64_t watch : watches) loop->Unwatch(watch);
      });
    }
    for (auto& pair : pairs) EXPECT_EQ(send(pair[1], "x", 1, 0), 1);
  });
  OnLoop(*loop, [] {});
  OnLoop(*loop, [] {});
  loop->Stop();
  EXPECT_EQ(runs, 1);
  for (auto& pair : pairs) {
    for (const int fd : pair) close(fd);
  }
}

TEST(EventLoop, StopRunsWhatWasPostedAndRefusesTheRest) {
  const auto loop = EventLoop::Make("test").value();
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) loop->Post([&] { ++ran; });
  loop->Stop([&] { ran += 1000; });
  EXPECT_EQ(ran, 1100);
  EXPECT_FALSE(loop->Post([] {}));
}

}  // namespace
}  // namespace baton::transport
