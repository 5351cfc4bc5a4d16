// SPDX-License-Identifier: Apache-2.0
// CRC-32C of KV slices, a block of threads each. A CRC is linear: a word's share
// is the word times x^(32 k) modulo the polynomial, where k - 1 words follow it.
// Threads take every 256th word, and step over what is between by a table.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected: bit 31 - k is x^k; also x^32

struct Shared {
  uint32_t steps[4][256];  // of the bytes of a word, times x^(32 kThreads)
  uint32_t sums[kThreads / kWarp];
};

// Products modulo the polynomial.
BATON_DEVICE uint32_t Times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

// x^(32 words).
BATON_DEVICE uint32_t PastWords(uint32_t words) {
  uint32_t power = 0x80000000u, square = kPolynomial;
  for (; words != 0; words >>= 1) {
    if ((words & 1) != 0) power = Times(power, square);
    square = Times(square, square);
  }
  return power;
}

BATON_DEVICE uint32_t Step(const Shared& shared, uint32_t sum) {
  return shared.steps[0][sum & 255] ^ shared.steps[1][sum >> 8 & 255] ^
         shared.steps[2][sum >> 16 & 255] ^ shared.steps[3][sum >> 24];
}

// The thread's words, each times its power of x.
BATON_DEVICE uint32_t ShareOf(const uint32_t* slice, uint32_t words, const Shared& shared) {
  uint32_t sum = 0, follow = 0;
  for (uint32_t i = ThreadIndex(); i < words; i += kThreads) {
    sum = Step(shared, sum) ^ slice[i];
    follow = words - i;
  }
  return Times(sum, PastWords(follow));
}

BATON_KERNEL(kThreads) ChecksumKernel(ChecksumTask task) {
  StartAfterProducers();
  BATON_SHARED(Shared, shared);
  const uint32_t power = PastWords(kThreads);
  for (uint32_t byte = 0; byte < 4; ++byte) {
    shared.steps[byte][ThreadIndex()] = Times(power, ThreadIndex() << (8 * byte));
  }
  SyncBlock();
  const uint32_t words = task.slice_bytes / 4;
  const auto* run = static_cast<const uint32_t*>(task.runs[BlockIndex().y]);
  uint32_t sum = ShareOf(run + size_t{BlockIndex().x} * words, words, shared);
  BATON_UNROLL
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) sum ^= ShuffleXor(sum, mask);
  if (Lane() == 0) shared.sums[WarpIndex()] = sum;
  SyncBlock();
  if (ThreadIndex() != 0) return;
  // It begins with ones and ends inverted.
  uint32_t crc = ~Times(0xffffffffu, PastWords(words));
  BATON_UNROLL
  for (unsigned warp = 0; warp < kThreads / kWarp; ++warp) crc ^= shared.sums[warp];
  task.out[size_t{BlockIndex().y} * task.slices + BlockIndex().x] = crc;
}

}  // namespace

void Checksums(const ChecksumTask& task, Stream stream) {
  Launch(ChecksumKernel, {task.slices, task.count}, kThreads, 0, stream, task);
}

}  // namespace baton::gpu
