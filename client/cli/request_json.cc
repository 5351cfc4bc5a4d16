// SPDX-License-Identifier: Apache-2.0
#include "client/cli/request_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/constraint_json.h"
#include "common/base/status_macros.h"
#include "common/config/nearest.h"

namespace baton::cli {
namespace {

using Json = nlohmann::json;
template <typename T>
using Setter = absl::Status (*)(const std::string& key, const Json& value, T* target);
template <typename T>
using Setters = std::vector<std::pair<std::string, Setter<T>>>;

absl::Status Wrong(const std::string& key, const std::string& wanted, const Json& value) {
  std::string got = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMost = 60;
  if (got.size() > kMost) got = absl::StrCat(got.substr(0, kMost), "...");
  return absl::InvalidArgumentError(absl::StrCat(key, " must be ", wanted, ", got ", got));
}

absl::Status UnknownKey(const std::string& key, const std::vector<std::string>& known) {
  const std::string near = config::Nearest(key, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown key \"", key, "\"", near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

template <typename T>
absl::StatusOr<T> Whole(const std::string& key, const Json& value) {
  const bool fits = value.is_number_unsigned() &&
                    value.get<uint64_t>() <= uint64_t{std::numeric_limits<T>::max()};
  if (!fits) {
    return Wrong(key, absl::StrCat("a whole number from 0 to ", std::numeric_limits<T>::max()),
                 value);
  }
  return value.get<T>();
}

template <typename T>
absl::Status SetWhole(const std::string& key, const Json& value, std::optional<T>* out) {
  BATON_ASSIGN_OR_RETURN(*out, Whole<T>(key, value));
  return absl::OkStatus();
}

absl::Status SetFloat(const std::string& key, const Json& value, std::optional<float>* out) {
  if (!value.is_number()) return Wrong(key, "a number", value);
  *out = value.get<float>();
  return absl::OkStatus();
}

absl::Status SetPriority(const std::string& key, const Json& value, Request* request) {
  if (!value.is_number_integer() || value.get<int64_t>() != value.get<int32_t>()) {
    return Wrong(key, "a whole number", value);
  }
  request->priority = value.get<int32_t>();
  return absl::OkStatus();
}

absl::Status SetString(const std::string& key, const Json& value, std::string* out) {
  if (!value.is_string()) return Wrong(key, "a string", value);
  *out = value.get<std::string>();
  return absl::OkStatus();
}

absl::Status SetIds(const std::string& key, const Json& value, std::vector<uint32_t>* out) {
  if (!value.is_array()) return Wrong(key, "a list of token ids", value);
  out->clear();
  for (size_t i = 0; i < value.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(uint32_t id, Whole<uint32_t>(absl::StrCat(key, "[", i, "]"), value[i]));
    out->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status SetTexts(const std::string& key, const Json& value, std::vector<std::string>* out) {
  out->clear();
  if (value.is_string()) {
    out->push_back(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return Wrong(key, "a string or a list of strings", value);
  for (size_t i = 0; i < value.size(); ++i) {
    std::string text;
    BATON_RETURN_IF_ERROR(SetString(absl::StrCat(key, "[", i, "]"), value[i], &text));
    out->push_back(std::move(text));
  }
  return absl::OkStatus();
}

absl::Status SetIdLists(const std::string& key, const Json& value,
                        std::vector<std::vector<uint32_t>>* out) {
  if (!value.is_array()) return Wrong(key, "a list of lists of token ids", value);
  out->clear();
  for (size_t i = 0; i < value.size(); ++i) {
    BATON_RETURN_IF_ERROR(SetIds(absl::StrCat(key, "[", i, "]"), value[i], &out->emplace_back()));
  }
  return absl::OkStatus();
}

// {"15": -2.5}: JSON's keys are strings.
absl::Status SetBiases(const std::string& key, const Json& value,
                       std::vector<std::pair<uint32_t, float>>* out) {
  if (!value.is_object()) return Wrong(key, "an object of token ids and numbers", value);
  out->clear();
  for (const auto& [name, bias] : value.items()) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(name, &id) || !bias.is_number()) {
      return Wrong(absl::StrCat(key, "[\"", name, "\"]"), "a number for a token id", bias);
    }
    out->emplace_back(id, bias.get<float>());
  }
  return absl::OkStatus();
}

absl::Status SetBool(const std::string& key, const Json& value, bool* out) {
  if (!value.is_boolean()) return Wrong(key, "true or false", value);
  *out = value.get<bool>();
  return absl::OkStatus();
}

absl::StatusOr<ChatTurn> ParseTurn(const std::string& where, const Json& value) {
  if (!value.is_object()) return Wrong(where, "an object with role and content", value);
  ChatTurn turn;
  bool has_role = false, has_content = false;
  for (const auto& [key, field] : value.items()) {
    const std::string name = absl::StrCat(where, ".", key);
    if (key == "role") {
      BATON_RETURN_IF_ERROR(SetString(name, field, &turn.role));
      has_role = true;
    } else if (key == "content") {
      BATON_RETURN_IF_ERROR(SetString(name, field, &turn.content));
      has_content = true;
    } else {
      return UnknownKey(key, {"role", "content"});
    }
  }
  if (!has_role) return absl::InvalidArgumentError(absl::StrCat(where, ".role is missing"));
  if (!has_content) return absl::InvalidArgumentError(absl::StrCat(where, ".content is missing"));
  return turn;
}

absl::StatusOr<std::vector<ChatTurn>> ParseTurns(const Json& value) {
  if (!value.is_array() || value.empty()) {
    return Wrong("messages", "a list of {\"role\", \"content\"} that is not empty", value);
  }
  std::vector<ChatTurn> turns;
  for (size_t i = 0; i < value.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(ChatTurn turn, ParseTurn(absl::StrCat("messages[", i, "]"), value[i]));
    turns.push_back(std::move(turn));
  }
  return turns;
}

void ClearInput(Request* request) {
  request->prompt.clear();
  request->prompt_ids.reset();
  request->messages.clear();
}

absl::Status SetPromptIds(const std::string& key, const Json& value, Request* request) {
  return SetIds(key, value, &request->prompt_ids.emplace());
}

absl::Status SetMessages(const std::string&, const Json& value, Request* request) {
  BATON_ASSIGN_OR_RETURN(request->messages, ParseTurns(value));
  return absl::OkStatus();
}

absl::Status SetPath(const std::string& key, const Json& value, Request* request) {
  std::string name;
  BATON_RETURN_IF_ERROR(SetString(key, value, &name));
  BATON_ASSIGN_OR_RETURN(request->path, ParsePath(name));
  return absl::OkStatus();
}

template <uint32_t Request::*kMember>
absl::Status SetWindow(const std::string& key, const Json& value, Request* request) {
  BATON_ASSIGN_OR_RETURN(request->*kMember, Whole<uint32_t>(key, value));
  return absl::OkStatus();
}

absl::Status SetWindowKeep(const std::string& key, const Json& value, Request* request) {
  std::vector<std::vector<uint32_t>> ranges;
  BATON_RETURN_IF_ERROR(SetIdLists(key, value, &ranges));
  request->window_keep.clear();
  for (const std::vector<uint32_t>& range : ranges) {
    if (range.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, " has a list of ", range.size(), " numbers; a range is [begin, end]"));
    }
    request->window_keep.emplace_back(range[0], range[1]);
  }
  return absl::OkStatus();
}

absl::Status SetDuration(const std::string& key, const Json& value,
                         std::optional<std::chrono::milliseconds>* out) {
  std::string text;
  BATON_RETURN_IF_ERROR(SetString(key, value, &text));
  BATON_ASSIGN_OR_RETURN(*out, ParseDuration(key, text));
  return absl::OkStatus();
}

template <typename T>
Beam* BeamOf(T* target) {
  if (!target->beam) target->beam.emplace();
  return &*target->beam;
}

// A setter for one member of T through one of the Set functions above.
#define BATON_KEY(name, set)                                                                      \
  {                                                                                               \
#name,                                                                                        \
        [](const std::string& key, const Json& value, T* t) { return set(key, value, &t->name); } \
  }

// What a request and a phase have in common.
template <typename T>
Setters<T> CommonSetters() {
  return {
      BATON_KEY(temperature, SetFloat),
      BATON_KEY(top_k, SetWhole),
      BATON_KEY(top_p, SetFloat),
      BATON_KEY(seed, SetWhole),
      BATON_KEY(repetition_penalty, SetFloat),
      BATON_KEY(min_p, SetFloat),
      BATON_KEY(typical_p, SetFloat),
      BATON_KEY(presence_penalty, SetFloat),
      BATON_KEY(frequency_penalty, SetFloat),
      BATON_KEY(logit_bias, SetBiases),
      BATON_KEY(bad_words, SetTexts),
      BATON_KEY(bad_token_sequences, SetIdLists),
      {"beams",
       [](const std::string& key, const Json& value, T* t) -> absl::Status {
         BATON_ASSIGN_OR_RETURN(BeamOf(t)->width, Whole<uint32_t>(key, value));
         return absl::OkStatus();
       }},
      {"length_penalty", [](const std::string& key, const Json& value,
                            T* t) { return SetFloat(key, value, &BeamOf(t)->length_penalty); }},
      {"early_stopping", [](const std::string& key, const Json& value,
                            T* t) { return SetString(key, value, &BeamOf(t)->early_stopping); }},
  };
}

const Setters<Phase>& PhaseSetters() {
  using T = Phase;
  static const auto* const kSetters = [] {
    auto* setters = new Setters<Phase>(CommonSetters<Phase>());
    setters->insert(setters->end(),
                    {{"max_tokens",
                      [](const std::string& key, const Json& value, T* t) -> absl::Status {
                        BATON_ASSIGN_OR_RETURN(t->max_tokens, Whole<uint32_t>(key, value));
                        return absl::OkStatus();
                      }},
                     BATON_KEY(until_token_ids, SetIds)});
    return setters;
  }();
  return *kSetters;
}

template <typename T>
absl::Status ApplyKey(const Setters<T>& setters, const std::string& key, const Json& value,
                      T* target) {
  for (const auto& [name, setter] : setters) {
    if (name == key) return setter(key, value, target);
  }
  std::vector<std::string> known;
  for (const auto& [name, setter] : setters) known.push_back(name);
  return UnknownKey(key, known);
}

absl::Status SetPhases(const std::string& key, const Json& value, std::vector<Phase>* out) {
  if (!value.is_array()) return Wrong(key, "a list of phases", value);
  out->clear();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = absl::StrCat(key, "[", i, "]");
    if (!value[i].is_object()) return Wrong(where, "an object", value[i]);
    Phase& phase = out->emplace_back();
    for (const auto& [name, field] : value[i].items()) {
      const absl::Status set = ApplyKey(PhaseSetters(), name, field, &phase);
      if (!set.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(where, ": ", std::string(set.message())));
      }
    }
  }
  return absl::OkStatus();
}

const Setters<Request>& RequestSetters() {
  using T = Request;
  static const auto* const kSetters = [] {
    auto* setters = new Setters<Request>(CommonSetters<Request>());
    setters->insert(setters->end(), {
                                        BATON_KEY(model, SetString),
                                        BATON_KEY(prompt, SetString),
                                        {"prompt_ids", SetPromptIds},
                                        {"messages", SetMessages},
                                        BATON_KEY(logprobs, SetWhole),
                                        BATON_KEY(prompt_logprobs, SetWhole),
                                        BATON_KEY(max_tokens, SetWhole),
                                        BATON_KEY(min_tokens, SetWhole),
                                        BATON_KEY(stop, SetTexts),
                                        BATON_KEY(stop_token_ids, SetIds),
                                        BATON_KEY(stop_sequences, SetIdLists),
                                        BATON_KEY(ignore_eos, SetBool),
                                        BATON_KEY(include_stop, SetBool),
                                        BATON_KEY(time_limit, SetDuration),
                                        BATON_KEY(preset, SetString),
                                        BATON_KEY(n, SetWhole),
                                        BATON_KEY(best_of, SetWhole),
                                        BATON_KEY(phases, SetPhases),
                                        {"window", SetWindow<&Request::window>},
                                        {"window_sinks", SetWindow<&Request::window_sinks>},
                                        {"window_stride", SetWindow<&Request::window_stride>},
                                        {"window_keep", SetWindowKeep},
                                        BATON_KEY(draft_tokens, SetWhole),
                                        {"path", SetPath},
                                        BATON_KEY(request_id, SetString),
                                        BATON_KEY(tenant, SetString),
                                        {"priority", SetPriority},
                                        BATON_KEY(cache_salt, SetString),
                                        BATON_KEY(prefix_cache, SetBool),
                                        BATON_KEY(deadline, SetDuration),
                                    });
    return setters;
  }();
  return *kSetters;
}
#undef BATON_KEY

}  // namespace

absl::Status ApplyRequestJson(std::string_view line, Request* request) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("not a JSON object in valid UTF-8");
  }
  const size_t inputs =
      object.count("prompt") + object.count("prompt_ids") + object.count("messages");
  if (inputs > 1) {
    return absl::InvalidArgumentError("give one of prompt, prompt_ids and messages, not several");
  }
  if (inputs == 1) ClearInput(request);
  for (const auto& [key, value] : object.items()) {
    if (key == "constraint") continue;
    BATON_RETURN_IF_ERROR(ApplyKey(RequestSetters(), key, value, request));
  }
  if (!object.contains("constraint")) return absl::OkStatus();
  // Once more, with the members of a schema in the order that they stand in.
  const auto ordered = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  BATON_ASSIGN_OR_RETURN(request->constraint, ParseConstraint(ordered["constraint"].dump()));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ChatTurn>> ParseConversation(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_array()) return ParseTurns(json);
  if (!json.is_object() || !json.contains("messages")) {
    return absl::InvalidArgumentError(
        "not a JSON list of messages, nor an object with \"messages\"");
  }
  return ParseTurns(json["messages"]);
}

absl::StatusOr<std::vector<Phase>> ParsePhases(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<Phase> phases;
  BATON_RETURN_IF_ERROR(SetPhases("phases", json, &phases));
  return phases;
}

absl::StatusOr<Path> ParsePath(std::string_view name) {
  if (name == "auto") return Path::kAuto;
  if (name == "split") return Path::kSplit;
  if (name == "local") return Path::kLocal;
  return absl::InvalidArgumentError(
      absl::StrCat("path must be auto, split or local, got \"", std::string(name), "\""));
}

absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view name,
                                                        std::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(std::string(text), &duration) || duration < absl::Milliseconds(1) ||
      duration > absl::Hours(24 * 365)) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(name), " must be a time such as \"500ms\" or \"30s\", got \"",
                     std::string(text), "\""));
  }
  return std::chrono::milliseconds(absl::ToInt64Milliseconds(duration));
}

}  // namespace baton::cli
