// SPDX-License-Identifier: Apache-2.0
// A worker's life: load, attach, run, drain, end.
#pragma once

#include "common/worker/handoff_end.h"
#include "common/worker/options.h"

namespace baton::worker {

// Runs a worker of options.role until SIGTERM or SIGINT, then drains it.
// Returns the process's exit code: 0, or 1 after a line that says what to
// change. Call it before any other thread starts.
int RunWorker(Options options, HandoffEnd* handoff);

}  // namespace baton::worker
