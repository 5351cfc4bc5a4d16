// SPDX-License-Identifier: Apache-2.0
#include "common/model/cpu_count.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "common/model/load.h"

namespace baton::model {
namespace {

class CgroupCpusTest : public ::testing::Test {
 protected:
  CgroupCpusTest() : root_(::testing::TempDir() + "/cgroup_cpus_test") {
    std::filesystem::remove_all(root_);
  }
  ~CgroupCpusTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const std::string root_;
};

TEST_F(CgroupCpusTest, IsUnlimitedWithoutAnyQuota) {
  EXPECT_EQ(CgroupCpus(root_), UINT32_MAX);
  Write("/proc/self/cgroup", "0::/pod\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCpus(root_), UINT32_MAX);
}

TEST_F(CgroupCpusTest, RoundsDownButNeverToZero) {
  Write("/proc/self/cgroup", "0::/pod\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  EXPECT_EQ(CgroupCpus(root_), 3u);
  Write("/sys/fs/cgroup/pod/cpu.max", "20000 100000\n");
  EXPECT_EQ(CgroupCpus(root_), 1u);
}

TEST_F(CgroupCpusTest, TakesTheLeastOfAllFoldersAbove) {
  Write("/proc/self/cgroup", "0::/kube/pod/app\n");
  Write("/sys/fs/cgroup/kube/pod/app/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/kube/pod/cpu.max", "800000 100000\n");
  Write("/sys/fs/cgroup/kube/cpu.max", "200000 100000\n");
  EXPECT_EQ(CgroupCpus(root_), 2u);
}

TEST_F(CgroupCpusTest, SeesTheMountsOwnQuotaInsideAContainer) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(CgroupCpus(root_), 4u);
}

TEST_F(CgroupCpusTest, ReadsVersionOne) {
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n");
  Write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  Write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpus(root_), 2u);
  Write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(CgroupCpus(root_), UINT32_MAX);
}

TEST_F(CgroupCpusTest, SurvivesNonsense) {
  Write("/proc/self/cgroup", "nonsense\n0::\n::\n1:cpu:relative\n");
  Write("/sys/fs/cgroup/cpu.max", "0 0 0 what\n");
  EXPECT_EQ(CgroupCpus(root_), UINT32_MAX);
}

TEST(UsableThreads, IsAtLeastOne) { EXPECT_GE(UsableThreads(), 1u); }

}  // namespace
}  // namespace baton::model
