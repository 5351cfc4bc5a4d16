// SPDX-License-Identifier: Apache-2.0
// The device side on the CPU, over simt/block.h. device.h says what each name
// means.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/simt/block.h"

#define BATON_KERNEL(threads) inline void
#define BATON_DEVICE inline
#define BATON_BOTH inline
#define BATON_SHARED(Type, name) \
  Type& name = *static_cast<Type*>(::baton::simt::SharedMemory(sizeof(Type)))
#define BATON_DYNAMIC_SHARED(Type, name) BATON_SHARED(Type, name)
#define BATON_UNROLL

namespace baton::gpu {

using Dim = simt::Dim;

inline unsigned ThreadIndex() { return simt::ThreadIndex(); }
inline Dim BlockIndex() { return simt::BlockIndex(); }
inline Dim GridSize() { return simt::GridSize(); }
inline void SyncBlock() { simt::SyncBlock(); }
inline void SyncWarp() { simt::SyncWarp(); }
inline constexpr bool kStartsEarly = true;
inline void WaitForProducers() { simt::WaitForProducers(); }
inline void LetConsumersStart() {}

template <typename T>
struct ShuffleArgument {
  T value, result;
  unsigned lane;
};
template <typename T>
inline T ShuffleFrom(const char* name, T value, unsigned lane) {
  ShuffleArgument<T> argument{value, value, lane};
  simt::MeetWarp(name, &argument, [](void* const* lanes) {
    for (unsigned i = 0; i < simt::kWarp; ++i) {
      auto* own = static_cast<ShuffleArgument<T>*>(lanes[i]);
      own->result = static_cast<ShuffleArgument<T>*>(lanes[own->lane % simt::kWarp])->value;
    }
  });
  return argument.result;
}
template <typename T>
inline T ShuffleXor(T value, unsigned mask) {
  return ShuffleFrom("a shuffle", value, (simt::ThreadIndex() % simt::kWarp) ^ mask);
}
template <typename T>
inline T Shuffle(T value, unsigned lane) {
  return ShuffleFrom("a shuffle", value, lane);
}

// Threads switch at meetings alone: nothing comes between. Atomic for TSan.
template <typename T>
inline T AtomicAdd(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

inline void CopyAsync16(void* to, const void* from, bool valid) {
  simt::CopyAsync16(to, valid ? from : nullptr);
}
inline void CommitCopies() { simt::CommitCopies(); }
template <int kPending>
inline void WaitCopies() {
  simt::WaitCopies(kPending);
}

struct MmaArgument {
  float* c;
  const uint32_t* a;
  uint32_t b[2];
};
// The whole product of a warp, as the PTX manual lays the fragments out. Sums
// in order of k; a GPU rounds its sums otherwise.
inline void MeetMma(void* const* lanes) {
  float a[16][16], b[16][8], c[16][8];
  const auto half = [](uint32_t pair, unsigned high) {
    return std::bit_cast<float>(high != 0 ? pair & 0xffff0000 : pair << 16);
  };
  for (unsigned lane = 0; lane < simt::kWarp; ++lane) {
    const auto* own = static_cast<const MmaArgument*>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = g + i % 2 * 8;
      for (unsigned p = 0; p < 2; ++p) a[row][2 * t + i / 2 * 8 + p] = half(own->a[i], p);
      c[g + i / 2 * 8][2 * t + i % 2] = own->c[i];
    }
    for (unsigned i = 0; i < 2; ++i) {
      for (unsigned p = 0; p < 2; ++p) b[2 * t + i * 8 + p][g] = half(own->b[i], p);
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned n = 0; n < 8; ++n) c[row][n] += a[row][k] * b[k][n];
    }
  }
  for (unsigned lane = 0; lane < simt::kWarp; ++lane) {
    const auto* own = static_cast<const MmaArgument*>(lanes[lane]);
    for (unsigned i = 0; i < 4; ++i) own->c[i] = c[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  }
}
inline void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaArgument argument{c, a, {b0, b1}};
  simt::MeetWarp("a matrix product", &argument, MeetMma);
}

inline float Exp2(float x) { return std::exp2(x); }
inline float Rsqrt(float x) { return 1 / std::sqrt(x); }

// The build never contracts (-ffp-contract=off).
inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
template <typename T>
inline T MulRn(T a, T b) {
  return a * b;
}
template <typename T>
inline T AddRn(T a, T b) {
  return a + b;
}
template <typename T>
inline T SubRn(T a, T b) {
  return a - b;
}
template <typename T>
inline T DivRn(T a, T b) {
  return a / b;
}

inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}
inline uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (size >= 65520.0f) return sign | 0x7c00;
  // Below the normal numbers all steps are 2^-24; adding rounds to them.
  if (size < 0x1p-14f) {
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(size * 0x1p24f + 0x1p23f - 0x1p23f));
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}
inline uint32_t RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // as cvt.rn gives it
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t FloatsToBf16(float low, float high) {
  return RoundToBf16(low) | RoundToBf16(high) << 16;
}
inline uint32_t SubBf16(uint32_t a, uint32_t b) {
  const auto low = [](uint32_t pair) { return std::bit_cast<float>(pair << 16); };
  const auto high = [](uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000); };
  return FloatsToBf16(low(a) - low(b), high(a) - high(b));
}
inline uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const auto byte = static_cast<uint32_t>(bytes >> (8 * (selectors >> (4 * i) & 7)) & 0xff);
    result |= byte << (8 * i);
  }
  return result;
}

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), Dim grid, unsigned threads, size_t dynamic_shared,
            void* stream, Arguments... arguments) {
  simt::Start(static_cast<simt::Stream*>(stream), [=] {
    simt::LaunchDependent(grid, {threads, 1, 1}, dynamic_shared, [=] { kernel(arguments...); });
  });
}

}  // namespace baton::gpu
