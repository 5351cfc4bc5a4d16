// SPDX-License-Identifier: Apache-2.0
// Prompts by the vendor's matrix library, on the emulated GPU over a stand-in for
// it, or on a real one over its own.
#include "common/model/gpu/vendor_products.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <optional>

#include "common/model/gpu/gpu_model.h"
#include "nlohmann/json.hpp"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/model/gpu/random_llama.h"
#include "tests/common/model/kv_continuation.h"
#include "tests/common/model/model_runner.h"
#include "tests/testing/environment.h"
#include "tests/testing/test_data.h"

namespace baton::model::gpu {
namespace {

constexpr uint32_t kPool = 96;

LoadOptions ByLibrary() {
  LoadOptions options = Options("auto", Precision::kFast, 1);
  options.kv_type = kv::KvType::kBf16;
  options.deterministic = false;
  return options;
}

class VendorProductsTest : public ::testing::Test {
 protected:
  VendorProductsTest() {
    if (baton::testing::TestDevice() == "emulated") {
      library_.emplace("BATON_CUBLASLT_LIBRARY", BATON_FAKE_CUBLASLT);
    }
  }

  static absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& path,
                                                     const LoadOptions& options) {
    auto checkpoint = checkpoint::OpenCheckpoint(path);
    if (!checkpoint.ok()) return checkpoint.status();
    return LoadGpuModel(**checkpoint, options, *ParseDevice(baton::testing::TestDevice()));
  }

 private:
  std::optional<EnvironmentSetting> library_;
};

TEST_F(VendorProductsTest, OwnGlmAnswersEveryCase) {
  ModelRunner runner(Load("embedded", ByLibrary()), kPool);
  ASSERT_TRUE(runner.ok());
  std::ifstream file(baton::testing::TestData("own-glm/golden.json"));
  const auto golden = nlohmann::json::parse(file);
  size_t left = BATON_SANITIZED ? 3 : golden["cases"].size();
  for (const auto& item : golden["cases"]) {
    if (left-- == 0) break;
    const auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(runner.Greedy(item["prompt_ids"].get<std::vector<TokenId>>(),
                            static_cast<uint32_t>(greedy.size())),
              greedy)
        << item["text"];
  }
}

double RelativeError(std::span<const float> actual, std::span<const float> expected) {
  double size = 0, error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    size += static_cast<double>(expected[i]) * expected[i];
    error += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
  }
  return std::sqrt(error / size);
}

// Each weight format is written out for the library, and v may be of another.
TEST_F(VendorProductsTest, EveryWeightTypeIsNearExactArithmeticInEveryChunk) {
  const checkpoint::TempFolder folder;
  const std::string path = folder.path() + "/llama.gguf";
  const std::pair<uint32_t, uint32_t> types[] = {{3, 8}, {0, 0}, {8, 8}, {2, 2}, {2, 0}};
  for (const auto& type : types) {
    if (BATON_SANITIZED && type != types[0]) continue;
    checkpoint::WriteRandomLlama(path, type.first, type.second);
    ModelRunner runner(Load(path, ByLibrary()), kPool);
    ModelRunner exact(path, Options("auto", Precision::kExact, 1), kPool);
    ASSERT_TRUE(runner.ok() && exact.ok());
    const auto tokens = RandomTokens(150, runner.vocabulary(), 8);
    TestSequence on_cpu = exact.NewSequence(150);
    const auto expected = exact.Feed(on_cpu, tokens, 150, LogitRows::kAll);
    for (const uint32_t chunk : {150u, 40u, 1u}) {
      if (BATON_SANITIZED && chunk == 1) continue;
      TestSequence on_gpu = runner.NewSequence(150);
      const auto logits = runner.Feed(on_gpu, tokens, chunk, LogitRows::kAll);
      EXPECT_LT(RelativeError(logits, expected), 0.02)
          << "GGUF types " << type.first << " and " << type.second << ", chunk " << chunk;
      runner.Reset();
    }
  }
}

// A step of one sequence twice in the same sizes: nothing is left to chance.
TEST_F(VendorProductsTest, EqualStepsHaveEqualBits) {
  std::vector<std::vector<float>> logits;
  for (int load = 0; load < 2; ++load) {
    ModelRunner runner(Load("embedded", ByLibrary()), kPool);
    ASSERT_TRUE(runner.ok());
    const auto tokens = RandomTokens(140, runner.vocabulary(), 3);
    for (int round = 0; round < 2; ++round) {
      TestSequence sequence = runner.NewSequence(140);
      logits.push_back(runner.Feed(sequence, tokens, 140, LogitRows::kAll));
    }
  }
  for (const auto& other : logits) EXPECT_TRUE(other == logits[0]);
}

// Workers of both kinds do not pair.
TEST_F(VendorProductsTest, ComputeIdNamesTheLibrary) {
  LoadOptions own = ByLibrary();
  own.deterministic = true;
  const auto with = Load("embedded", ByLibrary()), without = Load("embedded", own);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_NE((*with)->kv_layout().compute_id.find("prompts=cublaslt-"), std::string::npos);
  EXPECT_EQ((*without)->kv_layout().compute_id.find("cublaslt"), std::string::npos);
  EXPECT_NE((*with)->kv_layout().numerics_id, (*without)->kv_layout().numerics_id);
}

TEST(VendorProductsDeathTest, LibraryThatIsNotThereIsNamedWithTheFlag) {
  if (baton::testing::TestDevice() != "emulated") GTEST_SKIP() << "chooses a stand-in";
  const EnvironmentSetting none("BATON_CUBLASLT_LIBRARY", "libno-such-library.so");
  // In a process of its own, and first of all: the plugin keeps a library that was
  // opened before.
  EXPECT_EXIT(
      {
        auto checkpoint = checkpoint::OpenCheckpoint("embedded");
        const auto status =
            LoadGpuModel(**checkpoint, ByLibrary(), *ParseDevice("emulated")).status();
        const bool told = status.code() == absl::StatusCode::kUnavailable &&
                          status.message().find("--deterministic=false") != std::string::npos;
        _exit(told ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace baton::model::gpu
