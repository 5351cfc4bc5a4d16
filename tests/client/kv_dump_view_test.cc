// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kv_dump_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

void AddRun(v1::KvDump* dump, uint32_t first, uint32_t count, uint32_t requests, uint32_t transfers,
            uint32_t cached, const std::vector<uint32_t>& owners) {
  v1::KvRun* run = dump->add_runs();
  run->set_first(first);
  run->set_count(count);
  run->set_requests(requests);
  run->set_transfers(transfers);
  run->set_prefix_cache(cached);
  run->mutable_owners()->Add(owners.begin(), owners.end());
}

v1::KvDump Example() {
  v1::KvDump dump;
  dump.set_worker_id("decode-0");
  dump.set_role("decode");
  dump.set_block_tokens(32);
  dump.set_block_bytes(36 << 10);
  dump.set_blocks_total(100);
  dump.set_blocks_free(80);
  dump.set_swapped_blocks(5);
  v1::KvOwner* owner = dump.add_owners();
  owner->set_request_id("r-1");
  owner->set_state("decoding");
  owner->set_computed_tokens(321);
  dump.add_owners()->set_state("preempted");
  AddRun(&dump, 0, 4, 2, 0, 1, {0, 1});
  AddRun(&dump, 4, 1, 0, 1, 0, {0});
  AddRun(&dump, 5, 15, 0, 0, 1, {});
  AddRun(&dump, 20, 80, 0, 0, 0, {});
  return dump;
}

TEST(KvDumpView, SaysWhoHoldsEachBlockAndWhy) {
  const std::string text = FormatKvDump(Example());
  EXPECT_THAT(text, HasSubstr("20 of 100 blocks held"));
  EXPECT_THAT(text, HasSubstr("swapped out: 5"));
  EXPECT_THAT(text, HasSubstr("321"));
  EXPECT_THAT(text, HasSubstr("request x2 + prefix cache"));
  EXPECT_THAT(text, HasSubstr("r-1, #1")) << "one without an id has its number";
  EXPECT_THAT(text, HasSubstr("5-19"));
  EXPECT_THAT(text, HasSubstr("free"));
}

TEST(KvDumpView, OwnerThatIsNotThereIsShownByNumber) {
  v1::KvDump dump = Example();
  dump.mutable_runs(0)->set_owners(1, 77);
  EXPECT_THAT(FormatKvDump(dump), HasSubstr("r-1, #77"));
}

TEST(KvDumpView, JsonHasAll) {
  const auto json = KvDumpToJson(Example());
  EXPECT_EQ(json["blocks_free"], 80);
  EXPECT_EQ(json["owners"][1]["state"], "preempted");
  EXPECT_EQ(json["runs"][0]["owners"].size(), 2u);
  EXPECT_EQ(json["runs"][1]["transfers"], 1);
}

}  // namespace
}  // namespace baton::cli
