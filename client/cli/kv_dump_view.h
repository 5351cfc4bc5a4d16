// SPDX-License-Identifier: Apache-2.0
// What `baton status --kv-dump` shows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "baton/v1/admin.pb.h"

namespace baton::cli {

// Sums, the sequences that hold blocks, and the blocks in runs that are held alike.
std::string FormatKvDump(const v1::KvDump& dump);
nlohmann::ordered_json KvDumpToJson(const v1::KvDump& dump);

}  // namespace baton::cli
