// SPDX-License-Identifier: Apache-2.0
// Whatever happens to the cache, the weights are the right ones.
#include "common/model/packed_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/base/unique_fd.h"
#include "common/model/packed_file.h"
#include "common/model/packed_model.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/model/model_runner.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::byte> Copy(const PackedModel& model) {
  return {model.memory.get(), model.memory.get() + model.bytes};
}

class PackedCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = checkpoint::OpenCheckpoint("embedded");
    ASSERT_TRUE(opened.ok()) << opened.status();
    checkpoint_ = *std::move(opened);
    cache_.folder = folder_.path() + "/packed";
    cache_.least_bytes = 0;
    expected_ = Copy(Load({}));
  }

  PackedModel Load(const PackedCacheOptions& cache, const std::string& isa = "generic",
                   kernels::Precision precision = kernels::Precision::kFast) {
    ThreadPool pool(1);  // no threads: tests fork
    const auto weights = checkpoint_->Weights();
    EXPECT_TRUE(weights.ok());
    return PackModel(*checkpoint_, *weights, *kernels::FindBackend(isa), precision, cache, pool);
  }
  void ExpectLoads(WeightSource source) {
    const PackedModel model = Load(cache_);
    EXPECT_EQ(model.source, source);
    EXPECT_TRUE(Copy(model) == expected_);
  }

  // Names in the folder that end with `suffix`.
  std::vector<std::string> Files(const std::string& suffix) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(cache_.folder, error)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(suffix)) names.push_back(name);
    }
    return names;
  }
  std::string OnlyFile() const {
    const auto names = Files(".packed");
    EXPECT_EQ(names.size(), 1u);
    return names.empty() ? "" : cache_.folder + "/" + names.front();
  }

  // What a child process that runs `work` exits with; -signal when one ended it.
  template <typename Work>
  static pid_t Fork(const Work& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    return child;
  }
  static int Wait(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  checkpoint::TempFolder folder_;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  PackedCacheOptions cache_;
  std::vector<std::byte> expected_;
};

TEST_F(PackedCacheTest, SecondLoadMapsWhatTheFirstPacked) {
  ExpectLoads(WeightSource::kNewFile);
  ExpectLoads(WeightSource::kFoundFile);
  EXPECT_THAT(Files(".partial"), IsEmpty());
}

TEST_F(PackedCacheTest, LogitsHaveTheSameBitsFromMemoryNewFileAndFoundFile) {
  const auto tokens = RandomTokens(40, 600, 1);
  for (const std::string& isa : AvailableIsas()) {
    for (Precision precision : {Precision::kExact, Precision::kFast}) {
      LoadOptions options = Options(isa, precision);
      std::vector<float> expected;
      for (int load = 0; load < 3; ++load) {
        ModelRunner runner("embedded", options);
        ASSERT_TRUE(runner.ok());
        TestSequence sequence = runner.NewSequence(40);
        const auto logits = runner.Feed(sequence, tokens, 40, LogitRows::kAll);
        if (load == 0) expected = logits;
        EXPECT_EQ(std::memcmp(logits.data(), expected.data(), expected.size() * sizeof(float)), 0)
            << isa << ", load " << load;
        options.cache = cache_;
      }
    }
  }
}

TEST_F(PackedCacheTest, BackendsAndPrecisionsHaveFilesOfTheirOwn) {
  size_t files = 0;
  for (const std::string& isa : AvailableIsas()) {
    for (auto precision : {kernels::Precision::kExact, kernels::Precision::kFast}) {
      EXPECT_EQ(Load(cache_, isa, precision).source, WeightSource::kNewFile) << isa;
      EXPECT_EQ(Files(".packed").size(), ++files);
    }
  }
}

TEST_F(PackedCacheTest, ChangedCheckpointIsPackedAnew) {
  checkpoint::GgufBuilder builder = checkpoint::TinyLlamaKeys();
  checkpoint::AddTinyLlamaTensors(builder);
  std::string bytes = builder.Build();
  for (int change = 0; change < 2; ++change) {
    const std::string path = folder_.Write("model.gguf", bytes);
    checkpoint_ = *checkpoint::OpenCheckpoint(path);
    expected_ = Copy(Load({}));
    ExpectLoads(WeightSource::kNewFile);
    ExpectLoads(WeightSource::kFoundFile);
    checkpoint_.reset();
    bytes[bytes.size() - 40] ^= 1;
  }
  // The same bytes at another time: may be others, who knows.
  const std::string path = folder_.path() + "/model.gguf";
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  checkpoint_ = *checkpoint::OpenCheckpoint(path);
  ExpectLoads(WeightSource::kNewFile);
}

TEST_F(PackedCacheTest, FileOfAnotherDescriptionIsStale) {
  const std::string path = folder_.path() + "/x.packed";
  auto writer = PackedFileWriter::Create(path, "one", 64);
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::memset((*writer)->Room(64).data(), 7, 64);
  ASSERT_TRUE((*writer)->Commit().ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  ThreadPool pool(1);
  EXPECT_TRUE(MapPackedFile(path, "one", 64, pool).ok());
  for (const char* other : {"two", "on", "ones"}) {
    EXPECT_EQ(MapPackedFile(path, other, 64, pool).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << other;
  }
  EXPECT_EQ(MapPackedFile(path, "one", 128, pool).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(MapPackedFile(path + "x", "one", 64, pool).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(PackedCacheTest, EveryKindOfDamageIsFoundAndRepaired) {
  ExpectLoads(WeightSource::kNewFile);
  const std::string path = OnlyFile();
  const std::string good = checkpoint::ReadFile(path);
  const size_t data = good.size() - expected_.size();
  std::vector<std::string> bad = {"", good + "x"};
  for (size_t size : {size_t{10}, size_t{64}, data / 2, data, data + 1000, good.size() - 1}) {
    bad.push_back(good.substr(0, size));
  }
  const size_t head = good.find("head 672x");
  ASSERT_NE(head, std::string::npos);
  const size_t table = good.find('\n', head) + 1;  // the first checksums
  for (size_t at :
       {size_t{0}, size_t{8}, size_t{12}, size_t{16}, size_t{24}, size_t{33}, size_t{63},
        size_t{64}, size_t{200}, table, data, data + expected_.size() / 2, good.size() - 1}) {
    bad.push_back(good);
    bad.back()[at] ^= 4;
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    fs::remove(path);
    std::ofstream(path, std::ios::binary) << bad[i];
    ExpectLoads(WeightSource::kNewFile);
    EXPECT_TRUE(checkpoint::ReadFile(path) == good);
  }
  ExpectLoads(WeightSource::kFoundFile);
}

TEST_F(PackedCacheTest, ProcessesThatStartAtOnceShareOneFile) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(Fork([&] {
      const PackedModel model = Load(cache_);
      return Copy(model) == expected_ ? static_cast<int>(model.source) : 99;
    }));
  }
  std::vector<int> sources;
  for (pid_t child : children) sources.push_back(Wait(child));
  std::sort(sources.begin(), sources.end());
  const int made = static_cast<int>(WeightSource::kNewFile);
  const int found = static_cast<int>(WeightSource::kFoundFile);
  EXPECT_THAT(sources, ElementsAre(made, found, found, found));
}

TEST_F(PackedCacheTest, WaitsForTheLockOnlySoLong) {
  ExpectLoads(WeightSource::kNewFile);
  const std::string path = OnlyFile();
  fs::remove(path);
  const UniqueFd lock(open((path + ".lock").c_str(), O_RDWR));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  cache_.lock_patience = std::chrono::milliseconds(50);
  ExpectLoads(WeightSource::kMemory);
}

// SIGXFSZ ends the process at the first byte beyond the limit.
TEST_F(PackedCacheTest, ProcessKilledWhileItWritesLeavesNothingThatHarms) {
  for (rlim_t limit : {rlim_t{1}, rlim_t{2} << 20, (rlim_t{2} << 20) + 300'000}) {
    SCOPED_TRACE(limit);
    const int end = Wait(Fork([&] {
      const rlimit core{0, 0}, size{limit, limit};
      setrlimit(RLIMIT_CORE, &core);
      setrlimit(RLIMIT_FSIZE, &size);
      signal(SIGXFSZ, SIG_DFL);
      Load(cache_);
      return 0;
    }));
    EXPECT_EQ(end, -SIGXFSZ);
    EXPECT_EQ(Files(".partial").size(), 1u);
    ExpectLoads(WeightSource::kNewFile);
    EXPECT_THAT(Files(".partial"), IsEmpty());
    fs::remove(OnlyFile());
  }
}

TEST_F(PackedCacheTest, ProcessKilledAtAnyTimeLeavesNothingThatHarms) {
  for (int i = 0; i < 12; ++i) {
    const pid_t child = Fork([&] {
      Load(cache_);
      pause();
      return 0;
    });
    usleep(static_cast<useconds_t>(i) * 1000);
    kill(child, SIGKILL);
    EXPECT_EQ(Wait(child), -SIGKILL);
    EXPECT_TRUE(Copy(Load(cache_)) == expected_);
    ExpectLoads(WeightSource::kFoundFile);
    fs::remove(OnlyFile());
  }
}

TEST_F(PackedCacheTest, FullDiskFallsBackToMemory) {
  const int end = Wait(Fork([&] {
    const rlimit size{300'000, 300'000};
    setrlimit(RLIMIT_FSIZE, &size);
    signal(SIGXFSZ, SIG_IGN);
    const PackedModel model = Load(cache_);
    return Copy(model) == expected_ ? static_cast<int>(model.source) : 99;
  }));
  EXPECT_EQ(end, static_cast<int>(WeightSource::kMemory));
  EXPECT_THAT(Files(".packed"), IsEmpty());
  EXPECT_THAT(Files(".partial"), IsEmpty());
}

TEST_F(PackedCacheTest, FolderThatCannotBeWrittenFallsBackToMemory) {
  for (const std::string& folder : {std::string("/proc/packed"), std::string("/proc/self"),
                                    folder_.Write("file", "no folder") + "/packed"}) {
    cache_.folder = folder;
    ExpectLoads(WeightSource::kMemory);
  }
}

TEST_F(PackedCacheTest, SmallModelsArePackedIntoMemory) {
  cache_.least_bytes = PackedCacheOptions().least_bytes;
  ExpectLoads(WeightSource::kMemory);
  EXPECT_FALSE(fs::exists(cache_.folder));
}

TEST_F(PackedCacheTest, LimitRemovesWhatWasNotUsedForLongest) {
  using kernels::Precision;
  ExpectLoads(WeightSource::kNewFile);
  const std::string kept = OnlyFile();
  Load(cache_, "ref", Precision::kFast);
  for (const std::string& name : Files(".packed")) {
    const std::string path = cache_.folder + "/" + name;
    const auto age = std::chrono::hours(path == kept ? 2 : 1);
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  }
  ExpectLoads(WeightSource::kFoundFile);  // now the latest used
  cache_.limit_bytes = fs::file_size(kept) + Load({}, "generic", Precision::kExact).bytes + 1000;
  EXPECT_EQ(Load(cache_, "generic", Precision::kExact).source, WeightSource::kNewFile);
  EXPECT_EQ(Files(".packed").size(), 2u);
  EXPECT_TRUE(fs::exists(kept));
}

TEST_F(PackedCacheTest, ModelBeyondTheLimitIsPackedIntoMemoryAndRemovesNothing) {
  ExpectLoads(WeightSource::kNewFile);
  cache_.limit_bytes = 1000;
  EXPECT_EQ(Load(cache_, "ref").source, WeightSource::kMemory);
  EXPECT_EQ(Files(".packed").size(), 1u);
}

TEST_F(PackedCacheTest, HalfFilesOfOthersGoUnlessTheyAreBeingWritten) {
  fs::create_directories(cache_.folder);
  const std::string abandoned = cache_.folder + "/a.packed", busy = cache_.folder + "/b.packed";
  for (const std::string& path : {abandoned, busy}) std::ofstream(path + ".partial") << "half";
  const UniqueFd lock(open((busy + ".lock").c_str(), O_RDWR | O_CREAT, 0644));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  ExpectLoads(WeightSource::kNewFile);
  EXPECT_THAT(Files(".partial"), ElementsAre("b.packed.partial"));
}

TEST(PackedCacheFolder, FollowsFlagThenEnvironment) {
  setenv("BATON_CACHE_DIR", "/c", 1);
  setenv("HOME", "/h", 1);
  EXPECT_EQ(PackedCacheFolder("/x"), "/x");
  EXPECT_EQ(PackedCacheFolder("off"), "");
  EXPECT_EQ(PackedCacheFolder(""), "/c/packed");
  unsetenv("BATON_CACHE_DIR");
  EXPECT_EQ(PackedCacheFolder(""), "/h/.cache/baton/packed");
  unsetenv("HOME");
  EXPECT_EQ(PackedCacheFolder(""), "");
}

}  // namespace
}  // namespace baton::model
