// SPDX-License-Identifier: Apache-2.0
#include "router/validation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/kv/window_wire.h"
#include "common/prefix/block_hash.h"
#include "common/rpc/status.h"
#include "common/sched/policy.h"
#include "common/speculation/draft_policy.h"
#include "router/constraint_params.h"
#include "router/decoding_params.h"
#include "router/generation_params.h"

namespace baton::router {
namespace {

using google::protobuf::RepeatedPtrField;

constexpr size_t kMaxRequestIdBytes = 128;
constexpr int kMaxMessages = 4096;
constexpr uint32_t kDefaultMaxTokens = 512;
constexpr uint64_t kMaxPromptLogprobs = 32768;
constexpr size_t kMaxTenantBytes = 128;
// A text longer than this many bytes per token of context cannot fit, and is
// refused before it costs time in the tokenizer.
constexpr uint64_t kMaxBytesPerToken = 256;

absl::Status CheckModel(const std::string& name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "model \"", name, "\" is not served here; the served model is \"", model.name, "\""));
}

absl::Status SetAccount(const std::string& tenant, int32_t priority, ValidatedRequest& out) {
  if (tenant.size() > kMaxTenantBytes) {
    return rpc::BadField(
        "tenant", absl::StrCat("has ", tenant.size(), " bytes; the limit is ", kMaxTenantBytes));
  }
  if (priority < sched::kLowestPriority || priority > sched::kHighestPriority) {
    return rpc::BadField(
        "priority", absl::StrCat("is ", priority, "; it must be ", sched::kLowestPriority, " to ",
                                 sched::kHighestPriority));
  }
  out.tenant = tenant;
  out.priority = priority;
  return absl::OkStatus();
}

// Everything that costs nothing; the prompt is still to come.
template <typename Request>
absl::StatusOr<ValidatedRequest> CheckCommon(const Request& request, const ServedModel& model) {
  BATON_RETURN_IF_ERROR(CheckModel(request.model(), model));
  if (request.request_id().size() > kMaxRequestIdBytes) {
    return rpc::BadField("request_id", absl::StrCat("has ", request.request_id().size(),
                                                    " bytes; the limit is ", kMaxRequestIdBytes));
  }
  if (request.cache_salt().size() > prefix::kMaxSaltBytes) {
    return rpc::BadField("cache_salt",
                         absl::StrCat("has ", request.cache_salt().size(), " bytes; the limit is ",
                                      prefix::kMaxSaltBytes));
  }
  if (!v1::Path_IsValid(request.path())) {
    return rpc::BadField(
        "path", absl::StrCat("is ", static_cast<int>(request.path()), "; it must be 0, 1 or 2"));
  }
  ValidatedRequest out;
  out.request_id =
      !request.request_id().empty() ? request.request_id() : absl::StrFormat("%016x", RandomU64());
  out.path = request.path();
  BATON_RETURN_IF_ERROR(SetAccount(request.tenant(), request.priority(), out));
  out.cache_salt = request.cache_salt();
  out.prefix_cache = !request.no_prefix_cache();
  const absl::StatusOr<kv::Window> window = kv::WindowFrom(request);
  if (!window.ok()) return rpc::BadField("window", std::string(window.status().message()));
  out.window = *window;
  if (out.window.limited()) out.prefix_cache = false;
  if (request.has_draft_tokens()) {
    if (request.draft_tokens() > speculation::kMostDraftTokens) {
      return rpc::BadField("draft_tokens",
                           absl::StrCat("is ", request.draft_tokens(), "; it must be at most ",
                                        speculation::kMostDraftTokens));
    }
    out.draft_tokens = request.draft_tokens();
  }
  BATON_RETURN_IF_ERROR(SetSampling(request.sampling(), model, out.sampling));
  BATON_RETURN_IF_ERROR(SetStops(request.stop(), model, out));
  BATON_RETURN_IF_ERROR(SetDecoding(request.decoding(), model, out));
  if (request.has_constraint()) {
    BATON_RETURN_IF_ERROR(SetConstraint(request.constraint(), request.stop(), model, out));
  }
  return out;
}

absl::Status SetPrompt(std::string_view field, std::vector<TokenId> prompt,
                       const v1::StopParams& stop, const ServedModel& model,
                       ValidatedRequest& out) {
  if (prompt.empty()) return rpc::BadField(field, "is empty; at least one token is needed");
  if (prompt.size() >= model.context) {
    return rpc::BadField(
        field, absl::StrCat("has ", prompt.size(), " tokens; the context of ", model.context,
                            " tokens allows at most ", model.context - 1));
  }
  const uint32_t left = model.context - static_cast<uint32_t>(prompt.size());
  if (stop.max_tokens() > left) {
    return rpc::BadField(
        "stop.max_tokens",
        absl::StrCat("is ", stop.max_tokens(), "; the context of ", model.context,
                     " tokens leaves ", left, " after the prompt's ", prompt.size()));
  }
  // A row of numbers for each token, which goes through one stream.
  const uint64_t numbers = uint64_t{prompt.size()} * (1 + out.sampling.prompt_logprobs());
  if (out.sampling.has_prompt_logprobs() && numbers > kMaxPromptLogprobs) {
    return rpc::BadField(
        "sampling.prompt_logprobs",
        absl::StrCat("is ", out.sampling.prompt_logprobs(), ", and ", std::string(field), " has ",
                     prompt.size(), " tokens; tokens times 1 + prompt_logprobs is ", numbers,
                     "; the limit is ", kMaxPromptLogprobs));
  }
  out.max_tokens = stop.has_max_tokens() ? stop.max_tokens() : std::min(kDefaultMaxTokens, left);
  out.ends_at_context = !stop.has_max_tokens() && out.max_tokens == left;
  if (out.min_tokens > out.max_tokens) {
    return rpc::BadField("stop.min_tokens", absl::StrCat("is ", out.min_tokens,
                                                         "; stop.max_tokens is ", out.max_tokens));
  }
  BATON_RETURN_IF_ERROR(CheckLengths(out));
  BATON_RETURN_IF_ERROR(CheckConstraintLength(out));
  out.prompt = std::move(prompt);
  // Tokens that are scored are computed, cached or not.
  const bool shares = out.prefix_cache && !out.sampling.has_prompt_logprobs();
  if (shares) out.prefix = prefix::DigestChain(out.cache_salt, out.prompt);
  return absl::OkStatus();
}

absl::Status CheckTextBytes(std::string_view field, uint64_t bytes, const ServedModel& model) {
  const uint64_t limit = kMaxBytesPerToken * model.context;
  if (bytes <= limit) return absl::OkStatus();
  return rpc::BadField(field, absl::StrCat("has ", bytes, " bytes; a context of ", model.context,
                                           " tokens allows at most ", limit));
}

absl::Status NeedTokenizer(std::string_view field, std::string_view instead,
                           const ServedModel& model) {
  if (model.tokenizer != nullptr) return absl::OkStatus();
  return rpc::BadField(field, absl::StrCat("needs a tokenizer, and model \"", model.name,
                                           "\" has none", std::string(instead)));
}

absl::StatusOr<std::vector<TokenId>> EncodePrompt(const std::string& text,
                                                  const ServedModel& model) {
  BATON_RETURN_IF_ERROR(NeedTokenizer("prompt", "; send prompt_ids", model));
  if (text.empty()) return rpc::BadField("prompt", "is empty");
  BATON_RETURN_IF_ERROR(CheckTextBytes("prompt", text.size(), model));
  std::vector<TokenId> ids = model.tokenizer->prefix();
  const std::vector<TokenId> encoded = model.tokenizer->Encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

// `field`: "messages", or its path inside of a request.
absl::StatusOr<std::vector<TokenId>> EncodeMessages(const std::string& field,
                                                    const RepeatedPtrField<v1::ChatMessage>& in,
                                                    const ServedModel& model) {
  BATON_RETURN_IF_ERROR(NeedTokenizer(field, "; use Generate with prompt_ids", model));
  if (model.format == nullptr) {
    return rpc::BadField(field, absl::StrCat("model \"", model.name, "\" has no prompt format"));
  }
  if (in.empty() || in.size() > kMaxMessages) {
    return rpc::BadField(
        field, absl::StrCat("has ", in.size(), " messages; it must have 1 to ", kMaxMessages));
  }
  uint64_t bytes = 0;
  std::vector<chat::Message> messages;
  for (int i = 0; i < in.size(); ++i) {
    const auto role = chat::ParseChatRole(in[i].role());
    if (!role.ok()) {
      return rpc::BadField(absl::StrCat(field, "[", i, "].role"),
                           R"(must be "system", "user" or "assistant")");
    }
    bytes += in[i].content().size();
    messages.push_back({*role, in[i].content()});
  }
  const std::string last = absl::StrCat(field, "[", in.size() - 1, "]");
  if (messages.back().role != chat::ChatRole::kUser) {
    return rpc::BadField(last + ".role", R"(must be "user" in the last message)");
  }
  if (messages.back().content.empty()) return rpc::BadField(last + ".content", "is empty");
  BATON_RETURN_IF_ERROR(CheckTextBytes(field, bytes, model));
  auto ids = model.format->Render(messages, *model.tokenizer);
  if (!ids.ok()) return rpc::BadField(field, std::string(ids.status().message()));
  return ids;
}

}  // namespace

absl::StatusOr<ValidatedRequest> Validate(const v1::GenerateRequest& request,
                                          const ServedModel& model) {
  BATON_ASSIGN_OR_RETURN(ValidatedRequest out, CheckCommon(request, model));
  std::vector<TokenId> ids;
  std::string_view field = "prompt";
  switch (request.input_case()) {
    case v1::GenerateRequest::kPrompt: {
      BATON_ASSIGN_OR_RETURN(ids, EncodePrompt(request.prompt(), model));
      break;
    }
    case v1::GenerateRequest::kPromptIds:
      field = "prompt_ids.ids";
      BATON_RETURN_IF_ERROR(CheckIds(field, request.prompt_ids().ids(), model));
      ids.assign(request.prompt_ids().ids().begin(), request.prompt_ids().ids().end());
      break;
    case v1::GenerateRequest::INPUT_NOT_SET:
      return rpc::BadField(field, "is missing; set prompt or prompt_ids");
  }
  BATON_RETURN_IF_ERROR(SetPrompt(field, std::move(ids), request.stop(), model, out));
  return out;
}

absl::StatusOr<ValidatedRequest> Validate(const v1::ChatRequest& request,
                                          const ServedModel& model) {
  BATON_ASSIGN_OR_RETURN(ValidatedRequest out, CheckCommon(request, model));
  BATON_ASSIGN_OR_RETURN(auto ids, EncodeMessages("messages", request.messages(), model));
  BATON_RETURN_IF_ERROR(SetPrompt("messages", std::move(ids), request.stop(), model, out));
  out.polish = model.format->polishes_answers();
  return out;
}

absl::StatusOr<std::vector<TokenId>> ValidateTokenize(const v1::TokenizeRequest& request,
                                                      const ServedModel& model) {
  BATON_RETURN_IF_ERROR(CheckModel(request.model(), model));
  switch (request.input_case()) {
    case v1::TokenizeRequest::kPrompt:
      return EncodePrompt(request.prompt(), model);
    case v1::TokenizeRequest::kConversation:
      return EncodeMessages("conversation.messages", request.conversation().messages(), model);
    case v1::TokenizeRequest::INPUT_NOT_SET:
      break;
  }
  return rpc::BadField("prompt", "is missing; set prompt or conversation");
}

absl::StatusOr<std::vector<TokenId>> ValidateDetokenize(const v1::DetokenizeRequest& request,
                                                        const ServedModel& model) {
  BATON_RETURN_IF_ERROR(CheckModel(request.model(), model));
  BATON_RETURN_IF_ERROR(NeedTokenizer("token_ids", "", model));
  BATON_RETURN_IF_ERROR(CheckIds("token_ids", request.token_ids(), model));
  return std::vector<TokenId>(request.token_ids().begin(), request.token_ids().end());
}

}  // namespace baton::router
