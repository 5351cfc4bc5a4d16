// SPDX-License-Identifier: Apache-2.0
#include "common/worker/assignment.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/wire.h"
#include "common/kv/window_wire.h"
#include "common/prefix/block_hash.h"
#include "common/rpc/status.h"
#include "common/sampling/wire.h"
#include "common/sched/policy.h"
#include "common/speculation/draft_policy.h"

namespace baton::worker {
namespace {

constexpr int kMostStopTokens = 256;
constexpr int kMostEndpoints = 8;
constexpr int kMostPhases = 8;
constexpr size_t kMostEndpointBytes = 512;
constexpr size_t kMostRequestIdBytes = 128;
constexpr size_t kMostTenantBytes = 128;
constexpr size_t kMostSaltBytes = prefix::kMaxSaltBytes;
// Longer deadlines are no deadline; keeps the arithmetic away from overflow.
constexpr uint64_t kMostDeadlineMs = uint64_t{366} * 24 * 3600 * 1000;

absl::StatusOr<engine::Role> RoleFrom(v1::Assign::Role role, WorkerRole worker) {
  switch (role) {
    case v1::Assign::ROLE_PREFILL:
      if (worker == WorkerRole::kPrefill) return engine::Role::kPrefill;
      break;
    case v1::Assign::ROLE_DECODE:
      if (worker == WorkerRole::kDecode) return engine::Role::kDecode;
      break;
    case v1::Assign::ROLE_WHOLE:
      if (worker == WorkerRole::kDecode) return engine::Role::kWhole;
      break;
    default:
      break;
  }
  return rpc::BadField("role", absl::StrCat("a ", std::string(RoleName(worker)),
                                            " worker does not take role ", static_cast<int>(role)));
}

absl::StatusOr<sampling::Params> ParamsFrom(const v1::Assign& assign) {
  sampling::Params params = sampling::ParamsFromWire(assign.sampling());
  params.min_tokens = assign.min_tokens();
  if (const auto bad = sampling::FindBadParam(params)) {
    return rpc::BadField(absl::StrCat("sampling.", bad->field), bad->problem);
  }
  return params;
}

absl::StatusOr<sampling::BeamParams> BeamFrom(std::string_view field, const v1::BeamParams& wire) {
  const sampling::BeamParams beam = sampling::BeamParamsFromWire(wire);
  if (const auto bad = sampling::FindBadParam(beam)) {
    return rpc::BadField(absl::StrCat(std::string(field), ".", bad->field), bad->problem);
  }
  return beam;
}

absl::StatusOr<engine::PhaseSpec> PhaseFrom(const std::string& field, const v1::Phase& wire,
                                            const v1::Assign& assign) {
  engine::PhaseSpec phase;
  phase.sampling = sampling::ParamsFromWire(wire.sampling());
  phase.sampling.min_tokens = assign.min_tokens();
  if (const auto bad = sampling::FindBadParam(phase.sampling)) {
    return rpc::BadField(absl::StrCat(field, ".sampling.", bad->field), bad->problem);
  }
  if (wire.has_beam()) {
    BATON_ASSIGN_OR_RETURN(phase.beam, BeamFrom(absl::StrCat(field, ".beam"), wire.beam()));
  }
  if (wire.until_token_ids_size() > kMostStopTokens) {
    return rpc::BadField(
        absl::StrCat(field, ".until_token_ids"),
        absl::StrCat("must be at most ", kMostStopTokens, ", are ", wire.until_token_ids_size()));
  }
  phase.max_tokens = wire.max_tokens();
  phase.until_tokens.assign(wire.until_token_ids().begin(), wire.until_token_ids().end());
  return phase;
}

// What goes beyond single values is the engine's to check.
absl::Status SetDecoding(const v1::Assign& assign, engine::SequenceSpec& spec) {
  const v1::DecodingParams& decoding = assign.decoding();
  const uint32_t choices = decoding.has_best_of() ? decoding.best_of() : decoding.n();
  spec.choices = std::max(choices, 1u);
  if (decoding.has_beam()) {
    BATON_ASSIGN_OR_RETURN(spec.beam, BeamFrom("decoding.beam", decoding.beam()));
    spec.choices = std::max(decoding.n(), 1u);
  }
  if (decoding.phases_size() > kMostPhases) {
    return rpc::BadField("decoding.phases", absl::StrCat("must be at most ", kMostPhases, ", are ",
                                                         decoding.phases_size()));
  }
  for (int i = 0; i < decoding.phases_size(); ++i) {
    BATON_ASSIGN_OR_RETURN(
        spec.phases.emplace_back(),
        PhaseFrom(absl::StrCat("decoding.phases[", i, "]"), decoding.phases(i), assign));
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const v1::Assign& assign, const AssignLimits& limits) {
  if (assign.prompt_ids().empty()) return rpc::BadField("prompt_ids", "must not be empty");
  const uint64_t prompt = static_cast<uint64_t>(assign.prompt_ids_size());
  if (assign.max_tokens() == 0) return rpc::BadField("max_tokens", "must be at least 1, is 0");
  if (prompt + assign.max_tokens() > limits.context_tokens) {
    return rpc::BadField("max_tokens",
                         absl::StrCat("prompt (", prompt, ") and max_tokens (", assign.max_tokens(),
                                      ") exceed the context of ", limits.context_tokens));
  }
  if (assign.min_tokens() > assign.max_tokens()) {
    return rpc::BadField("min_tokens", absl::StrCat("is ", assign.min_tokens(), "; max_tokens is ",
                                                    assign.max_tokens()));
  }
  if (assign.stop_token_ids_size() > kMostStopTokens) {
    return rpc::BadField("stop_token_ids", absl::StrCat("must be at most ", kMostStopTokens,
                                                        ", are ", assign.stop_token_ids_size()));
  }
  const auto outside = std::find_if(assign.prompt_ids().begin(), assign.prompt_ids().end(),
                                    [&](uint32_t id) { return id >= limits.vocabulary_size; });
  if (outside != assign.prompt_ids().end()) {
    return rpc::BadField("prompt_ids", absl::StrCat("ids must be below ", limits.vocabulary_size,
                                                    ", one is ", *outside));
  }
  return absl::OkStatus();
}

absl::StatusOr<kv::Window> WindowFrom(const v1::Assign& assign, const AssignLimits& limits) {
  absl::StatusOr<kv::Window> window = kv::WindowFrom(assign);
  if (!window.ok()) return rpc::BadField("window", std::string(window.status().message()));
  if (window->limited() && !limits.windows) {
    return rpc::BadField("window", absl::StrCat("is ", window->tokens,
                                                "; this worker takes no sequences with a window"));
  }
  return window;
}

// Null: there is none.
absl::StatusOr<std::shared_ptr<grammar::Matcher>> ConstraintFrom(const v1::Assign& assign,
                                                                 const AssignLimits& limits) {
  if (!assign.has_constraint()) return nullptr;
  if (limits.constraints == nullptr) {
    return rpc::BadField("constraint", "is set; this worker's model has no tokenizer");
  }
  const auto source = grammar::SourceFromWire(assign.constraint());
  if (!source.ok()) return rpc::BadField("constraint", std::string(source.status().message()));
  auto matcher = limits.constraints->Get(*source);
  if (!matcher.ok()) return rpc::BadField("constraint", std::string(matcher.status().message()));
  return matcher;
}

absl::Status CheckHandoff(const v1::Assign& assign) {
  if (assign.role() == v1::Assign::ROLE_WHOLE) return absl::OkStatus();
  if (assign.handoff_key().size() != kHandoffKeyBytes) {
    return rpc::BadField("handoff_key", absl::StrCat("must be ", kHandoffKeyBytes, " bytes, is ",
                                                     assign.handoff_key().size()));
  }
  if (assign.role() != v1::Assign::ROLE_PREFILL) return absl::OkStatus();
  if (assign.handoff_endpoints().empty() || assign.handoff_endpoints_size() > kMostEndpoints) {
    return rpc::BadField(
        "handoff_endpoints",
        absl::StrCat("must be 1 to ", kMostEndpoints, ", are ", assign.handoff_endpoints_size()));
  }
  for (const v1::HandoffEndpoint& endpoint : assign.handoff_endpoints()) {
    if (endpoint.address().size() > kMostEndpointBytes || endpoint.transport().size() > 16) {
      return rpc::BadField("handoff_endpoints", "an address is too long");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<engine::SequenceSpec> SpecFromAssign(const v1::Assign& assign, uint64_t owner,
                                                    const AssignLimits& limits, absl::Time now) {
  engine::SequenceSpec spec;
  spec.ref = {.owner = owner, .key = assign.sequence_key()};
  BATON_ASSIGN_OR_RETURN(spec.role, RoleFrom(assign.role(), limits.role));
  if (assign.request_id().size() > kMostRequestIdBytes) {
    return rpc::BadField("request_id", absl::StrCat("must be at most ", kMostRequestIdBytes,
                                                    " bytes, is ", assign.request_id().size()));
  }
  if (assign.tenant().size() > kMostTenantBytes) {
    return rpc::BadField("tenant", absl::StrCat("must be at most ", kMostTenantBytes, " bytes, is ",
                                                assign.tenant().size()));
  }
  if (assign.cache_salt().size() > kMostSaltBytes) {
    return rpc::BadField("cache_salt", absl::StrCat("must be at most ", kMostSaltBytes,
                                                    " bytes, is ", assign.cache_salt().size()));
  }
  BATON_RETURN_IF_ERROR(CheckTokens(assign, limits));
  BATON_RETURN_IF_ERROR(CheckHandoff(assign));
  BATON_ASSIGN_OR_RETURN(spec.sampling, ParamsFrom(assign));
  BATON_RETURN_IF_ERROR(SetDecoding(assign, spec));
  BATON_ASSIGN_OR_RETURN(spec.window, WindowFrom(assign, limits));
  BATON_ASSIGN_OR_RETURN(spec.constraint, ConstraintFrom(assign, limits));
  spec.request_id = assign.request_id();
  spec.prompt.assign(assign.prompt_ids().begin(), assign.prompt_ids().end());
  spec.max_tokens = assign.max_tokens();
  spec.stop_tokens.assign(assign.stop_token_ids().begin(), assign.stop_token_ids().end());
  spec.handoff_key = assign.handoff_key();
  spec.tenant = assign.tenant();
  spec.priority = std::clamp(assign.priority(), sched::kLowestPriority, sched::kHighestPriority);
  spec.cache_salt = assign.cache_salt();
  spec.prefix_cache = !assign.no_prefix_cache();
  spec.swap_only = assign.foreign_kv();
  spec.draft_tokens = assign.has_draft_tokens() ? assign.draft_tokens() : limits.draft_tokens;
  if (spec.draft_tokens > speculation::kMostDraftTokens) {
    return rpc::BadField("draft_tokens",
                         absl::StrCat("must be at most ", speculation::kMostDraftTokens, ", is ",
                                      spec.draft_tokens));
  }
  if (assign.deadline_ms() > 0 && assign.deadline_ms() < kMostDeadlineMs) {
    spec.deadline = now + absl::Milliseconds(static_cast<int64_t>(assign.deadline_ms()));
  }
  return spec;
}

}  // namespace baton::worker
