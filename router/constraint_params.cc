// SPDX-License-Identifier: Apache-2.0
#include "router/constraint_params.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/grammar/token_trie.h"
#include "common/grammar/wire.h"
#include "common/rpc/status.h"

namespace baton::router {
namespace {

std::string FieldOf(const grammar::Source& source) {
  return absl::StrCat("constraint.", grammar::FieldOf(source.kind));
}

}  // namespace

absl::Status SetConstraint(const v1::Constraint& in, const v1::StopParams& stop,
                           const ServedModel& model, ValidatedRequest& out) {
  const auto source = grammar::SourceFromWire(in);
  if (!source.ok()) return rpc::BadField("constraint", std::string(source.status().message()));
  const std::string field = FieldOf(*source);
  if (model.tokenizer == nullptr) {
    return rpc::BadField(
        field, absl::StrCat("needs a tokenizer, and model \"", model.name, "\" has none"));
  }
  if (stop.ignore_eos()) {
    return rpc::BadField(field,
                         "is set together with stop.ignore_eos; a constrained answer ends "
                         "where its text is complete");
  }
  const auto program = model.constraints->Get(*source);
  if (!program.ok()) return rpc::BadField(field, std::string(program.status().message()));
  out.constraint = in;
  out.constraint_bytes = (*program)->least_bytes[(*program)->start];
  return absl::OkStatus();
}

absl::Status CheckConstraintLength(const ValidatedRequest& out) {
  const uint64_t most = uint64_t{out.max_tokens} * grammar::TokenTrie::kLongestToken;
  if (!out.constraint || out.constraint_bytes <= most) return absl::OkStatus();
  const auto source = grammar::SourceFromWire(*out.constraint);
  return rpc::BadField(
      "stop.max_tokens",
      absl::StrCat("is ", out.max_tokens, "; the shortest answer that ", FieldOf(*source),
                   " allows has ", out.constraint_bytes, " bytes, and no token more than ",
                   grammar::TokenTrie::kLongestToken));
}

}  // namespace baton::router
