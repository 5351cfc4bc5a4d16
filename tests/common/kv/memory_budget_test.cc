// SPDX-License-Identifier: Apache-2.0
#include "common/kv/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace baton::kv {
namespace {

using ::testing::HasSubstr;

// A folder that stands for the root of the file system.
class MemoryBudgetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/memory_budget_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(MemoryBudgetTest, WithoutCgroupTheMachineDecides) {
  Put("/proc/meminfo", "MemTotal:  4000 kB\nMemFree: 10 kB\nMemAvailable:  2000 kB\n");
  const MemoryBudget budget = ReadMemoryBudget(root_);
  EXPECT_EQ(budget.available_bytes, 2000u * 1024);
  EXPECT_THAT(budget.source, HasSubstr("MemAvailable"));
}

TEST_F(MemoryBudgetTest, LimitOfAGroupAboveCountsAndCacheIsFree) {
  Put("/proc/meminfo", "MemAvailable:  2000000 kB\n");
  Put("/proc/self/cgroup", "0::/pod/worker\n");
  Put("/sys/fs/cgroup/pod/worker/memory.max", "max\n");
  Put("/sys/fs/cgroup/pod/memory.max", "1000000\n");
  Put("/sys/fs/cgroup/pod/memory.current", "700000\n");
  Put("/sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 200000\n");
  const MemoryBudget budget = ReadMemoryBudget(root_);
  EXPECT_EQ(budget.available_bytes, 500000u);
  EXPECT_THAT(budget.source, HasSubstr("/sys/fs/cgroup/pod/"));
}

TEST_F(MemoryBudgetTest, VersionOneIsRead) {
  Put("/proc/meminfo", "MemAvailable:  2000000 kB\n");
  Put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n");
  Put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  Put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "6000\n");
  EXPECT_EQ(ReadMemoryBudget(root_).available_bytes, 0u);
}

TEST_F(MemoryBudgetTest, NothingReadableMeansNoLimit) {
  EXPECT_EQ(ReadMemoryBudget(root_).available_bytes, UINT64_MAX);
}

TEST(MemoryBudget, ThisMachineHasSome) {
  const MemoryBudget budget = ReadMemoryBudget();
  EXPECT_GT(budget.available_bytes, 1u << 20);
  EXPECT_LT(budget.available_bytes, uint64_t{1} << 50);
}

}  // namespace
}  // namespace baton::kv
