// SPDX-License-Identifier: Apache-2.0
#include "common/worker/kv_budget.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/byte_size.h"
#include "common/base/status_macros.h"

namespace baton::worker {
namespace {

constexpr uint32_t kMostContexts = 64;
constexpr uint64_t kMostBlocks = std::numeric_limits<uint32_t>::max() / 2;

constexpr uint64_t kDefaultSwap = 256 << 20;

std::string MiB(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

// "1GiB", or "70%" of what is available.
absl::StatusOr<uint64_t> ParseShareOrBytes(const std::string& text, uint64_t available_bytes) {
  if (text.empty() || text.back() != '%') return ParseBytes(text);
  uint32_t percent = 0;
  if (!absl::SimpleAtoi(text.substr(0, text.size() - 1), &percent) || percent < 1 ||
      percent > 100) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not from 1% to 100%"));
  }
  return available_bytes / 100 * percent;
}

absl::StatusOr<uint64_t> AskedBlocks(const KvBudget& budget, const kv::KvLayout& layout,
                                     uint64_t available_bytes) {
  if (budget.tokens.has_value()) {
    if (*budget.tokens == 0) return absl::InvalidArgumentError("--kv-tokens: must be at least 1");
    if (*budget.tokens / kv::kBlockTokens >= kMostBlocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("--kv-tokens: ", *budget.tokens, " is beyond what a pool can hold"));
    }
    return kv::BlocksForTokens(*budget.tokens);
  }
  const absl::StatusOr<uint64_t> bytes = ParseShareOrBytes(budget.memory, available_bytes);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-memory: ", std::string(bytes.status().message())));
  }
  const uint64_t blocks = std::min<uint64_t>(*bytes / layout.BlockBytes(), kMostBlocks);
  if (blocks == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--kv-memory: ", budget.memory,
                                                   " holds no block; one takes ",
                                                   layout.BlockBytes(), " bytes"));
  }
  return blocks;
}

}  // namespace

absl::StatusOr<uint32_t> PlanKvBlocks(const KvBudget& budget, const kv::KvLayout& layout,
                                      uint32_t context_tokens, uint64_t available_bytes) {
  const uint64_t block_bytes = layout.BlockBytes();
  if (!budget.tokens.has_value() && budget.memory.empty()) {
    const uint64_t share = available_bytes / 4 / block_bytes;
    const uint64_t most = uint64_t{kMostContexts} * kv::BlocksForTokens(context_tokens);
    const uint64_t blocks = std::min({share, most, kMostBlocks});
    if (blocks == 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a quarter of the free memory (", MiB(available_bytes),
                       ") holds no KV block of ", block_bytes, " bytes; set --kv-memory"));
    }
    return static_cast<uint32_t>(blocks);
  }
  BATON_ASSIGN_OR_RETURN(const uint64_t blocks, AskedBlocks(budget, layout, available_bytes));
  if (blocks > available_bytes / block_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV pool needs ", blocks, " blocks x ", block_bytes,
                     " bytes = ", MiB(blocks * block_bytes), ", free are ", MiB(available_bytes),
                     "; lower --kv-tokens or --kv-memory"));
  }
  return static_cast<uint32_t>(blocks);
}

absl::StatusOr<uint32_t> PlanFloorBlocks(const std::string& flag, const kv::KvLayout& layout,
                                         uint32_t pool_blocks, uint64_t available_bytes) {
  if (flag.empty()) return 0;
  const absl::StatusOr<uint64_t> bytes = ParseShareOrBytes(flag, available_bytes);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-floor: ", std::string(bytes.status().message())));
  }
  const uint64_t blocks = std::min<uint64_t>(*bytes / layout.BlockBytes(), pool_blocks);
  return static_cast<uint32_t>(std::max<uint64_t>(blocks, 1));
}

absl::StatusOr<uint64_t> PlanSwapBytes(const std::string& flag, uint64_t available_bytes) {
  if (flag.empty()) return std::min<uint64_t>(kDefaultSwap, available_bytes / 8);
  if (flag == "0") return 0;
  absl::StatusOr<uint64_t> bytes = ParseBytes(flag);
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-swap: ", std::string(bytes.status().message())));
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  if (!(statm >> total >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace baton::worker
