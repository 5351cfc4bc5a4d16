// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace baton::simt {

// 16 bytes, zeros when `from` is null. In a file of its own: the emulator is
// not looked at by TSan, but what it copies for the threads is.
void Copy16(void* to, const void* from);

}  // namespace baton::simt
