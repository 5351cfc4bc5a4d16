// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt, over a library that stands in for it and ends the program
// when it is called in a way that the real one does not allow.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/half_float.h"
#include "kernels/cuda/gemm/cublaslt_gemm.h"
#include "tests/kernels/cuda/gpu_inputs.h"
#include "tests/testing/environment.h"

namespace baton::gpu {
namespace {

using kernels::RandomFloats;

std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> rounded;
  for (float value : values) rounded.push_back(FloatToBf16(value));
  return rounded;
}

int FakeCount(const char* name) {
  void* const library = dlopen(BATON_FAKE_CUBLASLT, RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? -1 : reinterpret_cast<int (*)()>(dlsym(library, name))();
}

class GemmTest : public ::testing::Test {
 protected:
  std::unique_ptr<CublasLtGemm> Open() {
    std::string problem;
    auto gemm = CublasLtGemm::Open(workspace_.data(), &problem);
    EXPECT_NE(gemm, nullptr) << problem;
    return gemm;
  }

  const EnvironmentSetting library_{"BATON_CUBLASLT_LIBRARY", BATON_FAKE_CUBLASLT};
  std::vector<std::byte> workspace_ = std::vector<std::byte>(CublasLtGemm::kWorkspaceBytes);
};

TEST_F(GemmTest, StoresAddsAndBiases) {
  constexpr uint32_t kRows = 5, kOutputs = 7, kInputs = 64, kStride = 12;
  const auto weights = ToBf16(RandomFloats(kOutputs * kInputs, 1));
  const auto rows = ToBf16(RandomFloats(kRows * kInputs, 2));
  const auto bias = RandomFloats(kOutputs, 3);
  const auto gemm = Open();
  ASSERT_NE(gemm, nullptr);
  for (const bool add : {false, true}) {
    for (const float* with : {static_cast<const float*>(nullptr), bias.data()}) {
      if (add && with != nullptr) continue;
      std::vector<float> out(kRows * kStride, 2.5f);
      std::string problem;
      ASSERT_TRUE(gemm->Run(
          {weights.data(), rows.data(), with, out.data(), kStride, kRows, kOutputs, kInputs, add},
          nullptr, &problem))
          << problem;
      for (uint32_t r = 0; r < kRows; ++r) {
        for (uint32_t o = 0; o < kStride; ++o) {
          double sum = add ? 2.5 : 0;
          for (uint32_t i = 0; i < kInputs && o < kOutputs; ++i) {
            sum += static_cast<double>(Bf16ToFloat(weights[o * kInputs + i])) *
                   Bf16ToFloat(rows[r * kInputs + i]);
          }
          if (with != nullptr && o < kOutputs) sum += bias[o];
          ASSERT_NEAR(out[r * kStride + o], o < kOutputs ? sum : 2.5, 1e-4);
        }
      }
    }
  }
}

TEST_F(GemmTest, AsksForAnAlgorithmOncePerShapeAndLeavesNothingBehind) {
  constexpr uint32_t kOutputs = 16, kInputs = 32;
  const auto weights = ToBf16(RandomFloats(kOutputs * kInputs, 1));
  const auto rows = ToBf16(RandomFloats(20 * kInputs, 2));
  std::vector<float> out(20 * kOutputs);
  auto gemm = Open();
  ASSERT_NE(gemm, nullptr);
  const int before = FakeCount("fake_cublaslt_heuristics");
  std::string problem;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t count : {20u, 10u}) {
      for (const bool add : {false, true}) {
        ASSERT_TRUE(gemm->Run({weights.data(), rows.data(), nullptr, out.data(), kOutputs, count,
                               kOutputs, kInputs, add},
                              nullptr, &problem));
      }
    }
  }
  EXPECT_EQ(FakeCount("fake_cublaslt_heuristics") - before, 4);
  EXPECT_EQ(gemm->plans(), 4u);
  gemm.reset();
  EXPECT_EQ(FakeCount("fake_cublaslt_live"), 0);
}

TEST_F(GemmTest, TellsWhatTheLibraryRefuses) {
  const auto gemm = Open();
  ASSERT_NE(gemm, nullptr);
  std::vector<float> out(64);
  const std::vector<uint16_t> values(64);
  std::string problem;
  // A stride below the outputs: no layout.
  EXPECT_FALSE(gemm->Run({values.data(), values.data(), nullptr, out.data(), 1, 2, 4, 16, false},
                         nullptr, &problem));
  EXPECT_NE(problem.find("2 rows of 16 into 4"), std::string::npos) << problem;
  // Results at an odd address.
  EXPECT_FALSE(
      gemm->Run({values.data(), values.data(), nullptr, out.data() + 1, 4, 2, 4, 16, false},
                nullptr, &problem));
  EXPECT_NE(problem.find("says 7"), std::string::npos) << problem;
}

TEST(GemmLibrary, AbsentOneIsNamed) {
  const EnvironmentSetting none("BATON_CUBLASLT_LIBRARY", "libno-such-library.so");
  std::string problem;
  EXPECT_EQ(CublasLtGemm::Open(nullptr, &problem), nullptr);
  EXPECT_NE(problem.find("libno-such-library.so"), std::string::npos) << problem;
}

TEST(GemmLibrary, AnotherOneLacksTheFunctions) {
  const EnvironmentSetting other("BATON_CUBLASLT_LIBRARY", "libc.so.6");
  std::string problem;
  EXPECT_EQ(CublasLtGemm::Open(nullptr, &problem), nullptr);
  EXPECT_NE(problem.find("lacks functions"), std::string::npos) << problem;
}

// The real one, where it is installed: its functions are found; nothing runs.
TEST(GemmLibrary, TheRealOneHasTheFunctions) {
  if (BATON_SANITIZED) GTEST_SKIP() << "it is not ours to check";
  void* const library = dlopen("libcublasLt.so.13", RTLD_LAZY);
  if (library == nullptr) GTEST_SKIP() << "cuBLASLt 13 is not installed";
  CublasLtTable table{};
  std::string problem;
  EXPECT_TRUE(LoadCublasLt(&table, &problem)) << problem;
}

}  // namespace
}  // namespace baton::gpu
