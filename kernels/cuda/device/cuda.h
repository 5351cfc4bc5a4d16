// SPDX-License-Identifier: Apache-2.0
// The device side for nvcc: inline PTX of sm_80 and later. device.h says what
// each name means. No header of CCCL: they cost seconds per file.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#define BATON_KERNEL(threads) __global__ void __launch_bounds__(threads)
#define BATON_DEVICE __device__ __forceinline__
#define BATON_BOTH __host__ __device__ __forceinline__
#define BATON_SHARED(Type, name) __shared__ Type name
#define BATON_DYNAMIC_SHARED(Type, name)                             \
  extern __shared__ __align__(128) unsigned char baton_gpu_shared[]; \
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
BATON_DEVICE void SyncWarp() { __syncwarp(); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kStartsEarly = true;
#else
inline constexpr bool kStartsEarly = false;
#endif
BATON_DEVICE void WaitForProducers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
BATON_DEVICE void LetConsumersStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename T>
BATON_DEVICE T ShuffleXor(T value, unsigned mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <typename T>
BATON_DEVICE T Shuffle(T value, unsigned lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

BATON_DEVICE uint32_t AtomicAdd(uint32_t* at, uint32_t value) { return atomicAdd(at, value); }
BATON_DEVICE uint64_t AtomicAdd(uint64_t* at, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), value);  // NOLINT: CUDA's type
}

BATON_DEVICE void CopyAsync16(void* to, const void* from, bool valid) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
BATON_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
BATON_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

BATON_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

BATON_DEVICE float Exp2(float x) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
BATON_DEVICE float Rsqrt(float x) { return rsqrtf(x); }

BATON_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
BATON_DEVICE float MulRn(float a, float b) { return __fmul_rn(a, b); }
BATON_DEVICE float AddRn(float a, float b) { return __fadd_rn(a, b); }
BATON_DEVICE float SubRn(float a, float b) { return __fsub_rn(a, b); }
BATON_DEVICE float DivRn(float a, float b) { return __fdiv_rn(a, b); }
BATON_DEVICE double MulRn(double a, double b) { return __dmul_rn(a, b); }
BATON_DEVICE double AddRn(double a, double b) { return __dadd_rn(a, b); }
BATON_DEVICE double SubRn(double a, double b) { return __dsub_rn(a, b); }
BATON_DEVICE double DivRn(double a, double b) { return __ddiv_rn(a, b); }

BATON_DEVICE float HalfToFloat(uint16_t bits) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bits));
  return result;
}
BATON_DEVICE uint16_t FloatToHalf(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
BATON_DEVICE uint32_t FloatsToBf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// -1 times b plus a: sm_80 has no subtraction of bf16.
BATON_DEVICE uint32_t SubBf16(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(b), "r"(0xbf80bf80u), "r"(a));
  return result;
}
BATON_DEVICE uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selectors) {
  return __byte_perm(a, b, selectors);
}

// Whether kernels may begin before those before them have ended: from sm_90 on.
// Set when the device is opened.
inline bool launches_overlap = false;

// Errors are kept by the runtime: cudaGetLastError.
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), Dim grid, unsigned threads, size_t dynamic_shared,
            void* stream, Arguments... arguments) {
  if (dynamic_shared > 0) {
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(dynamic_shared));
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.x, grid.y, grid.z);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = dynamic_shared;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = launches_overlap ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace baton::gpu
