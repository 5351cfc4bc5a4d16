// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch at its worst: a block begins when nothing of what
// the kernel before it writes is there yet, and sees it when all its threads have
// waited (WaitForProducers). What a kernel reads too early then is 0xff.
#pragma once

#include <cstddef>

namespace baton::simt {

// Off at first. One thread at a time launches while it is on.
void SetOverlap(bool on);
bool OverlapIsOn();

// What kernels write and read; memory that was not named is never hidden.
void AddMemory(void* memory, size_t bytes);
void DropMemory(void* memory);
// The next kernel begins when all before have ended: it comes after a copy.
void EndOverlap();

// Of the emulator: around a kernel; around what a block does before it waits.
void BeginWrites();
void EndWrites();
void HideWritten();
void ShowWritten();

}  // namespace baton::simt
