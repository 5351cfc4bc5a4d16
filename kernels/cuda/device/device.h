// SPDX-License-Identifier: Apache-2.0
// What kernels are written against: NVIDIA GPUs (nvcc), AMD GPUs (hipcc), or
// the emulator (any C++ compiler). Each of the three defines
//   BATON_KERNEL(threads)         before a kernel's name, with its block size
//   BATON_DEVICE, BATON_BOTH      before functions of kernels, of both sides
//   BATON_SHARED(Type, name)      static shared memory of a block
//   BATON_DYNAMIC_SHARED(Type, name)  more than 48 KiB of it
//   BATON_UNROLL                  before a loop whose counts are constants
// and the functions below in baton::gpu. Warps have 32 threads that the kernels
// name; barriers and exchanges are always of whole warps.
//
//   unsigned ThreadIndex(); Dim BlockIndex(), GridSize();
//   void SyncBlock(), SyncWarp();
//   void WaitForProducers()                what kernels before it wrote is there. A
//     kernel may begin before they end where kStartsEarly (sm_90 and later): every thread calls it,
//     once, before its first read of what they wrote and its first write.
//   void LetConsumersStart()               the kernel behind may begin from here on
//   T ShuffleXor(T value, unsigned mask);  T Shuffle(T value, unsigned lane);
//   T AtomicAdd(T* at, T value)            of shared memory; uint32_t, uint64_t
//   void CopyAsync16(void* to, const void* from, bool valid)  else zeros;
//   void CommitCopies(); void WaitCopies<pending>();
//   void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
//     c += a b of bf16, m16n8k16: with g = lane / 4, t = lane % 4, words hold
//     k and k + 1 of a: [0] (g, 2t) [1] (g + 8, 2t) [2] (g, 2t + 8) [3] (g + 8,
//     2t + 8); b0: (2t, g), b1: (2t + 8, g); c: (g, 2t), (g, 2t + 1),
//     (g + 8, 2t), (g + 8, 2t + 1)
//   float Exp2(float), Rsqrt(float)        to a few ulp, not the same everywhere
//   Fma, MulRn, AddRn, SubRn, DivRn        of float or double: IEEE, never fused
//   float HalfToFloat(uint16_t); uint16_t FloatToHalf(float)  to nearest even
//   uint32_t FloatsToBf16(float low, float high)
//   uint32_t SubBf16(uint32_t, uint32_t)   of pairs, exact where representable
//   uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selectors)
//   Launch(kernel, grid, threads, dynamic_shared, stream, arguments...)
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__HIP__) || defined(__HIPCC__)
#include "kernels/cuda/device/hip.h"
#elif defined(__CUDACC__)
#include "kernels/cuda/device/cuda.h"
#else
#include "kernels/cuda/device/emulated.h"
#endif

namespace baton::gpu {

inline constexpr unsigned kWarp = 32;

struct alignas(16) Words4 {
  uint32_t word[4];
};

BATON_DEVICE unsigned Lane() { return ThreadIndex() % kWarp; }
BATON_DEVICE unsigned WarpIndex() { return ThreadIndex() / kWarp; }

template <typename T>
BATON_DEVICE T LoadAs(const void* from) {
  return *static_cast<const T*>(from);
}

BATON_DEVICE float AsFloat(uint32_t bits) {
  union {
    uint32_t bits;
    float value;
  } both{bits};
  return both.value;
}
BATON_DEVICE uint32_t AsBits(float value) {
  union {
    float value;
    uint32_t bits;
  } both{value};
  return both.bits;
}

BATON_DEVICE float Bf16ToFloat(uint32_t bits) { return AsFloat(bits << 16); }
BATON_DEVICE float LowBf16(uint32_t pair) { return AsFloat(pair << 16); }
BATON_DEVICE float HighBf16(uint32_t pair) { return AsFloat(pair & 0xffff0000); }
BATON_DEVICE uint16_t FloatToBf16(float value) {
  return static_cast<uint16_t>(FloatsToBf16(value, 0) & 0xffff);
}

template <typename T>
BATON_DEVICE T Least(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
BATON_DEVICE T Most(T a, T b) {
  return a > b ? a : b;
}

// Two 8-bit codes in bytes 0 and 2 of a word as bf16: exact. 128 + the low
// seven bits, and what to take away, both have a bf16 of one pattern.
BATON_DEVICE uint32_t CodesToBf16(uint32_t codes) {
  return SubBf16(0x43004300u | (codes & 0x007f007fu), 0x43004300u | (codes & 0x00800080u));
}

// How a kernel begins that has nothing to do ahead of the kernels before it.
BATON_DEVICE void StartAfterProducers() {
  WaitForProducers();
  LetConsumersStart();
}

// Sums over the threads of a warp in a fixed order; all get the result.
BATON_DEVICE float WarpSum(float value) {
  BATON_UNROLL
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) {
    value = AddRn(value, ShuffleXor(value, mask));
  }
  return value;
}

}  // namespace baton::gpu
