// SPDX-License-Identifier: Apache-2.0
// The device side for AMD GPUs (hipcc), in plain vector code: a warp of the
// kernels is 32 lanes, on wave64 hardware half of a wave. Matrix products go
// through exchanges of lanes, copies are done at once. Compiled in tests, not
// run: nothing here was measured. device.h says what each name means.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#define BATON_KERNEL(threads) __global__ void __launch_bounds__(threads)
#define BATON_DEVICE __device__ __forceinline__
#define BATON_BOTH __host__ __device__ __forceinline__
#define BATON_SHARED(Type, name) __shared__ Type name
#define BATON_DYNAMIC_SHARED(Type, name)                                            \
  extern __shared__ __attribute__((aligned(128))) unsigned char baton_gpu_shared[]; \
  Type& name = *reinterpret_cast<Type*>(baton_gpu_shared)
#define BATON_UNROLL _Pragma("unroll")

namespace baton::gpu {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

BATON_DEVICE unsigned ThreadIndex() { return threadIdx.x; }
BATON_DEVICE Dim BlockIndex() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
BATON_DEVICE Dim GridSize() { return {gridDim.x, gridDim.y, gridDim.z}; }
BATON_DEVICE void SyncBlock() { __syncthreads(); }
// The lanes of a wave run together; memory has to be in order.
BATON_DEVICE void SyncWarp() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}

inline constexpr bool kStartsEarly = false;
BATON_DEVICE void WaitForProducers() {}
BATON_DEVICE void LetConsumersStart() {}

template <typename T>
BATON_DEVICE T Shuffle(T value, unsigned lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  union Words {
    T value;
    int word[sizeof(T) / 4];
  } from{value}, to;
  for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
    to.word[i] = __shfl(from.word[i], static_cast<int>(lane), 32);
  }
  return to.value;
}
template <typename T>
BATON_DEVICE T ShuffleXor(T value, unsigned mask) {
  return Shuffle(value, (threadIdx.x % 32) ^ mask);
}

BATON_DEVICE uint32_t AtomicAdd(uint32_t* at, uint32_t value) { return atomicAdd(at, value); }
BATON_DEVICE uint64_t AtomicAdd(uint64_t* at, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), value);  // NOLINT: HIP's type
}

BATON_DEVICE void CopyAsync16(void* to, const void* from, bool valid) {
  *static_cast<uint4*>(to) = valid ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}
BATON_DEVICE void CommitCopies() {}
template <int kPending>
BATON_DEVICE void WaitCopies() {}

BATON_DEVICE float Fma(float a, float b, float c) { return fmaf(a, b, c); }
template <typename T>
BATON_DEVICE T MulRn(T a, T b) {
  return a * b;
}
template <typename T>
BATON_DEVICE T AddRn(T a, T b) {
  return a + b;
}
template <typename T>
BATON_DEVICE T SubRn(T a, T b) {
  return a - b;
}
template <typename T>
BATON_DEVICE T DivRn(T a, T b) {
  return a / b;
}
BATON_DEVICE float Exp2(float x) { return exp2f(x); }
BATON_DEVICE float Rsqrt(float x) { return rsqrtf(x); }

BATON_DEVICE float BitsAsFloat(uint32_t bits) { return __builtin_bit_cast(float, bits); }
BATON_DEVICE float HalfToFloat(uint16_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
BATON_DEVICE uint16_t FloatToHalf(float value) {
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}
BATON_DEVICE uint32_t RoundToBf16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
BATON_DEVICE uint32_t FloatsToBf16(float low, float high) {
  return RoundToBf16(low) | RoundToBf16(high) << 16;
}
BATON_DEVICE uint32_t SubBf16(uint32_t a, uint32_t b) {
  return FloatsToBf16(BitsAsFloat(a << 16) - BitsAsFloat(b << 16),
                      BitsAsFloat(a & 0xffff0000) - BitsAsFloat(b & 0xffff0000));
}
BATON_DEVICE uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(bytes >> (8 * (selectors >> (4 * i) & 7)) & 0xff) << (8 * i);
  }
  return result;
}

// The lane's four sums: rows g and g + 8, columns 2 t and 2 t + 1; each pair of
// k comes from the lanes that hold it.
BATON_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (unsigned from = 0; from < 4; ++from) {
    for (unsigned half = 0; half < 2; ++half) {
      const uint32_t b = half == 0 ? b0 : b1;
      for (unsigned column = 0; column < 2; ++column) {
        const uint32_t weight = Shuffle(b, (2 * t + column) * 4 + from);
        for (unsigned row = 0; row < 2; ++row) {
          const uint32_t value = Shuffle(a[half * 2 + row], g * 4 + from);
          float& sum = c[row * 2 + column];
          sum = fmaf(BitsAsFloat(value << 16), BitsAsFloat(weight << 16), sum);
          sum = fmaf(BitsAsFloat(value & 0xffff0000), BitsAsFloat(weight & 0xffff0000), sum);
        }
      }
    }
  }
}

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), Dim grid, unsigned threads, size_t dynamic_shared,
            void* stream, Arguments... arguments) {
  kernel<<<dim3(grid.x, grid.y, grid.z), threads, dynamic_shared,
           static_cast<hipStream_t>(stream)>>>(arguments...);
}

}  // namespace baton::gpu
