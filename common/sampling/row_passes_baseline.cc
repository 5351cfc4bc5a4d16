// SPDX-License-Identifier: Apache-2.0
// Compiled for every CPU of the architecture.
#define BATON_ROW_PASSES baseline
#include "common/sampling/row_passes_code.h"
