// SPDX-License-Identifier: Apache-2.0
#include "client/convert.h"

#include "common/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace baton::client {
namespace {

v1::Path ToProto(Path path) {
  switch (path) {
    case Path::kSplit:
      return v1::PATH_SPLIT;
    case Path::kLocal:
      return v1::PATH_LOCAL;
    case Path::kAuto:
      break;
  }
  return v1::PATH_UNSPECIFIED;
}

std::optional<v1::SamplingPreset> PresetFrom(const std::string& name) {
  if (name.empty()) return v1::SAMPLING_PRESET_UNSPECIFIED;
  if (name == "greedy") return v1::SAMPLING_PRESET_GREEDY;
  if (name == "chatglm2") return v1::SAMPLING_PRESET_CHATGLM2;
  if (name == "llama2") return v1::SAMPLING_PRESET_LLAMA2;
  return std::nullopt;
}

void FillSampling(const Sampling& request, v1::SamplingParams* sampling) {
  if (request.temperature) sampling->set_temperature(*request.temperature);
  if (request.top_k) sampling->set_top_k(*request.top_k);
  if (request.top_p) sampling->set_top_p(*request.top_p);
  if (request.seed) sampling->set_seed(*request.seed);
  if (request.repetition_penalty) sampling->set_repetition_penalty(*request.repetition_penalty);
  if (request.min_p) sampling->set_min_p(*request.min_p);
  if (request.typical_p) sampling->set_typical_p(*request.typical_p);
  if (request.presence_penalty) sampling->set_presence_penalty(*request.presence_penalty);
  if (request.frequency_penalty) sampling->set_frequency_penalty(*request.frequency_penalty);
  sampling->mutable_logit_bias()->insert(request.logit_bias.begin(), request.logit_bias.end());
  for (const std::string& word : request.bad_words) sampling->add_bad_words(word);
  for (const auto& ids : request.bad_token_sequences) {
    sampling->add_bad_token_sequences()->mutable_ids()->Add(ids.begin(), ids.end());
  }
}

std::optional<v1::EarlyStopping> EarlyStoppingFrom(const std::string& name) {
  if (name.empty() || name == "heuristic") return v1::EARLY_STOPPING_HEURISTIC;
  if (name == "always") return v1::EARLY_STOPPING_ALWAYS;
  if (name == "never") return v1::EARLY_STOPPING_NEVER;
  return std::nullopt;
}

void FillBeam(const Beam& beam, v1::BeamParams* proto) {
  proto->set_width(beam.width);
  if (beam.length_penalty) proto->set_length_penalty(*beam.length_penalty);
  proto->set_early_stopping(
      EarlyStoppingFrom(beam.early_stopping).value_or(v1::EARLY_STOPPING_UNSPECIFIED));
}

void FillDecoding(const Request& request, v1::DecodingParams* decoding) {
  if (request.n) decoding->set_n(*request.n);
  if (request.best_of) decoding->set_best_of(*request.best_of);
  if (request.beam) FillBeam(*request.beam, decoding->mutable_beam());
  for (const Phase& phase : request.phases) {
    v1::Phase* proto = decoding->add_phases();
    FillSampling(phase, proto->mutable_sampling());
    if (phase.beam) FillBeam(*phase.beam, proto->mutable_beam());
    proto->set_max_tokens(phase.max_tokens);
    proto->mutable_until_token_ids()->Add(phase.until_token_ids.begin(),
                                          phase.until_token_ids.end());
  }
}

void FillStop(const Request& request, v1::StopParams* stop) {
  if (request.max_tokens) stop->set_max_tokens(*request.max_tokens);
  for (const std::string& text : request.stop) stop->add_stop(text);
  for (uint32_t id : request.stop_token_ids) stop->add_stop_token_ids(id);
  if (request.ignore_eos) stop->set_ignore_eos(true);
  if (request.min_tokens) stop->set_min_tokens(*request.min_tokens);
  for (const auto& ids : request.stop_sequences) {
    stop->add_stop_sequences()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  if (request.include_stop) stop->set_include_stop(true);
  if (request.time_limit) {
    stop->set_time_limit_ms(static_cast<uint32_t>(request.time_limit->count()));
  }
}

// What GenerateRequest and ChatRequest have in common.
void FillConstraint(const Constraint& constraint, v1::Constraint* proto) {
  if (constraint.json == "object") proto->set_json(v1::Constraint::JSON_TEXT_OBJECT);
  if (constraint.json == "value") proto->set_json(v1::Constraint::JSON_TEXT_VALUE);
  if (constraint.json_schema) proto->set_json_schema(*constraint.json_schema);
  if (constraint.regex) proto->set_regex(*constraint.regex);
  for (const std::string& choice : constraint.choices) proto->add_choices(choice);
}

template <typename Proto>
void FillCommon(const Request& request, Proto* proto) {
  proto->set_model(request.model);
  v1::SamplingParams* sampling = proto->mutable_sampling();
  FillSampling(request, sampling);
  if (request.logprobs) sampling->set_logprobs(*request.logprobs);
  if (request.prompt_logprobs) sampling->set_prompt_logprobs(*request.prompt_logprobs);
  sampling->set_preset(PresetFrom(request.preset).value_or(v1::SAMPLING_PRESET_UNSPECIFIED));
  FillDecoding(request, proto->mutable_decoding());
  FillStop(request, proto->mutable_stop());
  if (request.constraint) FillConstraint(*request.constraint, proto->mutable_constraint());
  proto->set_path(ToProto(request.path));
  proto->set_request_id(request.request_id);
  proto->set_tenant(request.tenant);
  proto->set_priority(request.priority);
  proto->set_cache_salt(request.cache_salt);
  proto->set_no_prefix_cache(!request.prefix_cache);
  proto->set_window(request.window);
  proto->set_window_sinks(request.window_sinks);
  proto->set_window_stride(request.window_stride);
  for (const auto& [begin, end] : request.window_keep) {
    v1::TokenRange* range = proto->add_window_keep();
    range->set_begin(begin);
    range->set_end(end);
  }
  if (request.draft_tokens) proto->set_draft_tokens(*request.draft_tokens);
}

// Adds the turns to anything with a repeated `messages`.
template <typename Proto>
void FillMessages(const Request& request, Proto* proto) {
  for (const ChatTurn& turn : request.messages) {
    v1::ChatMessage* message = proto->add_messages();
    message->set_role(turn.role);
    message->set_content(turn.content);
  }
}

TokenLogprobs FromProto(const v1::TokenLogprobs& proto) {
  TokenLogprobs logprobs;
  logprobs.logprob = proto.logprob();
  logprobs.bytes = proto.token_bytes();
  for (const v1::TokenLogprob& top : proto.top()) {
    logprobs.top.emplace_back(top.token_id(), top.logprob());
    logprobs.top_bytes.push_back(top.token_bytes());
  }
  return logprobs;
}

const char* ReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_STOP_TEXT:
      return "stop_text";
    case v1::FINISH_REASON_STOP_SEQUENCE:
      return "stop_sequence";
    case v1::FINISH_REASON_CONTEXT:
      return "context";
    case v1::FINISH_REASON_TIME:
      return "time";
    default:
      return "unknown";
  }
}

template <typename End>
void TakeEnd(const End& end, Choice* choice) {
  choice->finish_reason = ReasonName(end.reason());
  choice->matched_stop = end.matched_stop();
  choice->matched_token_ids.assign(end.matched_token_ids().begin(), end.matched_token_ids().end());
}

bool TextOk(const std::string& field, const std::string& text, Status* status) {
  const size_t valid = FirstInvalidUtf8(text);
  if (valid == text.size()) return true;
  status->code = StatusCode::kInvalidArgument;
  status->field = field;
  status->message = field + " is not valid UTF-8 at byte " + std::to_string(valid);
  return false;
}

bool ConstraintOk(const Constraint& constraint, Status* status) {
  if (!constraint.json.empty() && constraint.json != "object" && constraint.json != "value") {
    status->code = StatusCode::kInvalidArgument;
    status->field = "constraint.json";
    status->message = R"(constraint.json must be "object" or "value")";
    return false;
  }
  if (constraint.json_schema &&
      !TextOk("constraint.json_schema", *constraint.json_schema, status)) {
    return false;
  }
  if (constraint.regex && !TextOk("constraint.regex", *constraint.regex, status)) return false;
  for (size_t i = 0; i < constraint.choices.size(); ++i) {
    const std::string field = "constraint.choices[" + std::to_string(i) + "]";
    if (!TextOk(field, constraint.choices[i], status)) return false;
  }
  return true;
}

bool BadWordsOk(const std::string& prefix, const Sampling& sampling, Status* status) {
  for (size_t i = 0; i < sampling.bad_words.size(); ++i) {
    const std::string field = prefix + ".bad_words[" + std::to_string(i) + "]";
    if (!TextOk(field, sampling.bad_words[i], status)) return false;
  }
  return true;
}

bool BeamOk(const std::string& prefix, const Beam& beam, Status* status) {
  if (EarlyStoppingFrom(beam.early_stopping).has_value()) return true;
  status->code = StatusCode::kInvalidArgument;
  status->field = prefix + ".early_stopping";
  status->message = status->field + " is \"" + beam.early_stopping +
                    "\"; it must be \"heuristic\", \"always\" or \"never\"";
  return false;
}

}  // namespace

Status CheckText(const Request& request) {
  Status status;
  if (!TextOk("model", request.model, &status) || !TextOk("prompt", request.prompt, &status) ||
      !TextOk("request_id", request.request_id, &status) ||
      !TextOk("tenant", request.tenant, &status) ||
      !TextOk("cache_salt", request.cache_salt, &status)) {
    return status;
  }
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const std::string field = "messages[" + std::to_string(i) + "]";
    if (!TextOk(field + ".role", request.messages[i].role, &status) ||
        !TextOk(field + ".content", request.messages[i].content, &status)) {
      return status;
    }
  }
  if (request.constraint && !ConstraintOk(*request.constraint, &status)) return status;
  for (size_t i = 0; i < request.stop.size(); ++i) {
    if (!TextOk("stop.stop[" + std::to_string(i) + "]", request.stop[i], &status)) return status;
  }
  if (!BadWordsOk("sampling", request, &status)) return status;
  if (request.beam && !BeamOk("decoding.beam", *request.beam, &status)) return status;
  for (size_t i = 0; i < request.phases.size(); ++i) {
    const Phase& phase = request.phases[i];
    const std::string field = "decoding.phases[" + std::to_string(i) + "]";
    if (!BadWordsOk(field + ".sampling", phase, &status)) return status;
    if (phase.beam && !BeamOk(field + ".beam", *phase.beam, &status)) return status;
  }
  if (!PresetFrom(request.preset).has_value()) {
    status.code = StatusCode::kInvalidArgument;
    status.field = "sampling.preset";
    status.message = "sampling.preset is \"" + request.preset +
                     "\"; it must be \"greedy\", \"chatglm2\" or \"llama2\"";
  }
  return status;
}

v1::GenerateRequest ToGenerateRequest(const Request& request) {
  v1::GenerateRequest proto;
  FillCommon(request, &proto);
  if (request.prompt_ids) {
    v1::TokenIds* ids = proto.mutable_prompt_ids();
    ids->mutable_ids()->Add(request.prompt_ids->begin(), request.prompt_ids->end());
  } else {
    proto.set_prompt(request.prompt);
  }
  return proto;
}

v1::ChatRequest ToChatRequest(const Request& request) {
  v1::ChatRequest proto;
  FillCommon(request, &proto);
  FillMessages(request, &proto);
  return proto;
}

v1::TokenizeRequest ToTokenizeRequest(const Request& request) {
  v1::TokenizeRequest proto;
  proto.set_model(request.model);
  if (request.messages.empty()) {
    proto.set_prompt(request.prompt);
  } else {
    FillMessages(request, proto.mutable_conversation());
  }
  return proto;
}

Status FromGrpc(const grpc::Status& status) {
  Status result;
  result.code = static_cast<StatusCode>(status.error_code());
  result.message = status.error_message();
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) {
    return result;
  }
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&bad_request) && bad_request.field_violations_size() > 0) {
      result.field = bad_request.field_violations(0).field();
    } else if (detail.UnpackTo(&retry)) {
      result.retry_after = std::chrono::milliseconds(retry.retry_delay().seconds() * 1000 +
                                                     retry.retry_delay().nanos() / 1'000'000);
    }
  }
  return result;
}

TokenEvent FromProto(const v1::Tokens& tokens) {
  TokenEvent event;
  event.choice = tokens.choice();
  event.first_index = tokens.first_index();
  event.token_ids.assign(tokens.token_ids().begin(), tokens.token_ids().end());
  event.text = tokens.text();
  for (const v1::TokenLogprobs& logprobs : tokens.logprobs()) {
    event.logprobs.push_back(FromProto(logprobs));
  }
  return event;
}

void AppendPromptLogprobs(const v1::PromptLogprobs& scored, Result* result) {
  for (const v1::TokenLogprobs& logprobs : scored.logprobs()) {
    result->prompt_logprobs.push_back(FromProto(logprobs));
  }
}

void FillChoice(const v1::ChoiceFinished& finished, Choice* choice) {
  TakeEnd(finished, choice);
  if (finished.has_score()) choice->score = finished.score();
}

void FillFinished(const v1::Finished& finished, Result* result) {
  if (result->choices.empty()) result->choices.emplace_back();
  TakeEnd(finished, &result->choices.front());
  result->prompt_tokens = finished.usage().prompt_tokens();
  result->cached_prompt_tokens = finished.usage().cached_prompt_tokens();
  result->completion_tokens = finished.usage().completion_tokens();
  const v1::Timing& timing = finished.timing();
  result->timing = {timing.queue(),       timing.prefill(), timing.transfer(),
                    timing.first_token(), timing.decode(),  timing.total()};
  result->prefill_worker = finished.route().prefill_worker();
  result->decode_worker = finished.route().decode_worker();
  result->transport = finished.route().transport();
  result->path_reason = finished.route().reason();
  result->handoff_bytes = finished.route().handoff_bytes();
  result->handoff_cached_tokens = finished.route().handoff_cached_tokens();
  result->foreign_kv = finished.route().foreign_kv();
  result->predicted_split = finished.route().predicted_split();
  result->predicted_local = finished.route().predicted_local();
  const v1::Scheduling& scheduling = finished.scheduling();
  result->scheduling = {scheduling.preemptions(), scheduling.recomputed_tokens(),
                        scheduling.swapped_bytes(), scheduling.preempted()};
  const v1::Speculation& speculation = finished.speculation();
  result->speculation = {speculation.steps(), speculation.drafted_tokens(),
                         speculation.accepted_tokens()};
}

WorkerStatus FromProto(const v1::WorkerInfo& worker) {
  const v1::WorkerLoad& load = worker.load();
  WorkerStatus status;
  status.id = worker.worker_id();
  status.role = worker.role() == v1::WORKER_ROLE_PREFILL  ? "prefill"
                : worker.role() == v1::WORKER_ROLE_DECODE ? "decode"
                                                          : "unknown";
  status.model = worker.model();
  status.compute = worker.compute();
  status.admin_address = worker.admin_address();
  status.draining = worker.draining();
  status.pid = worker.pid();
  status.threads = worker.threads();
  status.waiting_sequences = load.waiting_sequences();
  status.running_sequences = load.running_sequences();
  status.queued_prompt_tokens = load.queued_prompt_tokens();
  status.kv_blocks_total = load.kv_blocks_total();
  status.kv_blocks_free = load.kv_blocks_free();
  status.kv_block_tokens = load.kv_block_tokens();
  status.kv_blocks_requests = load.kv_blocks_requests();
  status.kv_blocks_transfers = load.kv_blocks_transfers();
  status.kv_blocks_prefix_cache = load.kv_blocks_prefix_cache();
  status.kv_blocks_reclaimable = load.kv_blocks_reclaimable();
  status.prefix_lookup_tokens = load.prefix_lookup_tokens();
  status.prefix_hit_tokens = load.prefix_hit_tokens();
  status.prefix_evictions = load.prefix_evictions();
  status.kv_bytes_total = load.kv_bytes_total();
  status.resident_bytes = load.resident_bytes();
  status.steps = load.steps();
  status.prompt_tokens = load.prompt_tokens();
  status.tokens = load.tokens();
  status.preemptions = load.preemptions();
  status.recomputed_tokens = load.recomputed_tokens();
  status.swapped_bytes = load.swapped_bytes();
  const v1::DeviceMemory& memory = load.device_memory();
  status.device_memory = {memory.total_bytes(), memory.free_bytes(), memory.weight_bytes(),
                          memory.kv_bytes(), memory.step_bytes()};
  status.drafted_tokens = load.drafted_tokens();
  status.accepted_tokens = load.accepted_tokens();
  status.swap_bytes_used = load.swap_bytes_used();
  status.swap_bytes_total = load.swap_bytes_total();
  status.handoff_bytes = load.handoff_bytes();
  return status;
}

ModelDescription FromProto(const v1::Model& model) {
  ModelDescription description;
  description.name = model.name();
  description.architecture = model.architecture();
  description.prompt_format = model.prompt_format();
  description.vocabulary_size = model.vocabulary_size();
  description.context_tokens = model.context_tokens();
  description.has_tokenizer = model.has_tokenizer();
  return description;
}

}  // namespace baton::client
