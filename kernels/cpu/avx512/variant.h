// SPDX-License-Identifier: Apache-2.0
// The sources of this folder are compiled twice: for processors with BF16
// instructions (Zen 4, Cooper Lake, Sapphire Rapids and later), and for those
// with VNNI alone (Cascade Lake, Ice Lake, Tiger Lake), where simd.h says what
// stands in. Results differ in the last bits, so formats have names of their own.
#pragma once

#ifdef BATON_AVX512_VNNI
#define BATON_AVX512 avx512vnni
#define BATON_AVX512_NAME "avx512vnni"
#else
#define BATON_AVX512 avx512
#define BATON_AVX512_NAME "avx512"
#endif
