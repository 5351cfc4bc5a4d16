// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kv_dump_view.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/table.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string Times(const char* reason, uint32_t count) {
  if (count == 0) return "";
  return count == 1 ? reason : absl::StrCat(reason, " x", count);
}

// "request x2 + prefix cache".
std::string ReasonsOf(const v1::KvRun& run) {
  std::vector<std::string> reasons;
  for (std::string reason : {Times("request", run.requests()), Times("transfer", run.transfers()),
                             Times("prefix cache", run.prefix_cache())}) {
    if (!reason.empty()) reasons.push_back(std::move(reason));
  }
  return reasons.empty() ? "free" : absl::StrJoin(reasons, " + ");
}

// Of an owner that the dump does not have, its number.
std::string NameOf(const v1::KvDump& dump, uint32_t owner) {
  if (owner >= static_cast<uint32_t>(dump.owners_size())) return absl::StrCat("#", owner);
  const std::string& id = dump.owners(static_cast<int>(owner)).request_id();
  return id.empty() ? absl::StrCat("#", owner) : id;
}

std::string OwnersOf(const v1::KvDump& dump, const v1::KvRun& run) {
  if (run.owners().empty()) return "-";
  return absl::StrJoin(run.owners(), ", ",
                       [&](std::string* out, uint32_t owner) { out->append(NameOf(dump, owner)); });
}

std::string OwnerTable(const v1::KvDump& dump) {
  std::vector<std::vector<std::string>> rows;
  for (int i = 0; i < dump.owners_size(); ++i) {
    const v1::KvOwner& owner = dump.owners(i);
    rows.push_back({NameOf(dump, static_cast<uint32_t>(i)), owner.state(),
                    absl::StrCat(owner.prompt_tokens()), absl::StrCat(owner.computed_tokens()),
                    absl::StrCat(owner.branches()), absl::StrCat(owner.blocks()),
                    absl::StrCat(owner.transfer_blocks()), absl::StrCat(owner.swapped_blocks()),
                    absl::StrCat(owner.dropped_blocks()),
                    owner.tenant().empty() ? "-" : owner.tenant()});
  }
  return FormatTable({"REQUEST", "STATE", "PROMPT", "COMPUTED", "BRANCHES", "BLOCKS", "TRANSFER",
                      "SWAPPED", "GIVEN BACK", "TENANT"},
                     rows);
}

std::string RunTable(const v1::KvDump& dump) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::KvRun& run : dump.runs()) {
    const uint32_t last = run.first() + run.count() - 1;
    rows.push_back(
        {run.count() == 1 ? absl::StrCat(run.first()) : absl::StrCat(run.first(), "-", last),
         absl::StrCat(run.count()), ReasonsOf(run), OwnersOf(dump, run)});
  }
  return FormatTable({"BLOCKS", "COUNT", "REASONS", "REQUESTS"}, rows);
}

}  // namespace

std::string FormatKvDump(const v1::KvDump& dump) {
  std::string text = absl::StrFormat(
      "%s (%s), step %u: %u of %u blocks held, %u tokens and %s each\n"
      "by reason: request %u, transfer %u, prefix cache %u (%u of them for nobody else); "
      "swapped out: %u\n",
      dump.worker_id(), dump.role(), dump.step(), dump.blocks_total() - dump.blocks_free(),
      dump.blocks_total(), dump.block_tokens(), FormatBytes(dump.block_bytes()),
      dump.blocks_requests(), dump.blocks_transfers(), dump.blocks_prefix_cache(),
      dump.blocks_reclaimable(), dump.swapped_blocks());
  if (!dump.owners().empty()) absl::StrAppend(&text, "\n", OwnerTable(dump));
  absl::StrAppend(&text, "\n", RunTable(dump));
  return text;
}

OrderedJson KvDumpToJson(const v1::KvDump& dump) {
  OrderedJson json = {{"worker", dump.worker_id()},
                      {"role", dump.role()},
                      {"taken_unix_us", dump.taken_unix_us()},
                      {"step", dump.step()},
                      {"block_tokens", dump.block_tokens()},
                      {"block_bytes", dump.block_bytes()},
                      {"blocks_total", dump.blocks_total()},
                      {"blocks_free", dump.blocks_free()},
                      {"blocks_requests", dump.blocks_requests()},
                      {"blocks_transfers", dump.blocks_transfers()},
                      {"blocks_prefix_cache", dump.blocks_prefix_cache()},
                      {"blocks_reclaimable", dump.blocks_reclaimable()},
                      {"swapped_blocks", dump.swapped_blocks()},
                      {"owners", OrderedJson::array()},
                      {"runs", OrderedJson::array()}};
  for (const v1::KvOwner& owner : dump.owners()) {
    json["owners"].push_back({{"request_id", owner.request_id()},
                              {"tenant", owner.tenant()},
                              {"sequence_key", owner.sequence_key()},
                              {"state", owner.state()},
                              {"prompt_tokens", owner.prompt_tokens()},
                              {"computed_tokens", owner.computed_tokens()},
                              {"branches", owner.branches()},
                              {"blocks", owner.blocks()},
                              {"transfer_blocks", owner.transfer_blocks()},
                              {"swapped_blocks", owner.swapped_blocks()},
                              {"dropped_blocks", owner.dropped_blocks()}});
  }
  for (const v1::KvRun& run : dump.runs()) {
    json["runs"].push_back({{"first", run.first()},
                            {"count", run.count()},
                            {"requests", run.requests()},
                            {"transfers", run.transfers()},
                            {"prefix_cache", run.prefix_cache()},
                            {"owners", run.owners()}});
  }
  return json;
}

}  // namespace baton::cli
