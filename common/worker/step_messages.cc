// SPDX-License-Identifier: Apache-2.0
#include "common/worker/step_messages.h"

#include "common/rpc/status.h"

namespace baton::worker {
namespace {

void SetStatus(const absl::Status& status, v1::SequenceEnd* end) {
  // ToGrpc cuts the message and makes it valid UTF-8, which a proto3 string must be.
  const grpc::Status wire = rpc::ToGrpc(status);
  end->set_code(static_cast<int32_t>(wire.error_code()));
  end->set_message(wire.error_message());
}

v1::FinishReason ReasonMessage(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case engine::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case engine::FinishReason::kNone:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void FillLogprobs(const sampling::TokenLogprobs& logprobs, v1::TokenLogprobs* out) {
  out->set_logprob(logprobs.logprob);
  for (const auto& [id, logprob] : logprobs.top) {
    v1::TokenLogprob* top = out->add_top();
    top->set_token_id(id);
    top->set_logprob(logprob);
  }
}

void AddPromptLogprobs(const engine::PromptLogprobsOutput& scored, v1::StepOutput* step) {
  v1::SequencePromptLogprobs* out = step->add_prompt_logprobs();
  out->set_sequence_key(scored.ref.key);
  out->set_first_index(scored.first_index);
  for (const sampling::TokenLogprobs& logprobs : scored.logprobs) {
    FillLogprobs(logprobs, out->add_logprobs());
  }
}

void AddToken(const engine::TokenOutput& token, v1::StepOutput* step) {
  v1::SequenceTokens* out = step->add_tokens();
  out->set_sequence_key(token.ref.key);
  out->set_first_index(token.index);
  out->add_token_ids(token.sample.token);
  if (token.sample.logprobs.has_value()) {
    FillLogprobs(*token.sample.logprobs, out->add_logprobs());
  }
  if (token.prefill_end.has_value()) {
    out->set_prefill_end_unix_us(absl::ToUnixMicros(*token.prefill_end));
  }
  if (token.first_step_start.has_value()) {
    out->set_first_step_unix_us(absl::ToUnixMicros(*token.first_step_start));
  }
  out->set_choice(token.choice);
  out->set_finish_reason(ReasonMessage(token.finish));
  if (token.score.has_value()) out->set_score(*token.score);
}

void AddEnd(const engine::EndOutput& ended, v1::StepOutput* step) {
  v1::SequenceEnd* end = step->add_ends();
  end->set_sequence_key(ended.ref.key);
  if (!ended.status.ok()) SetStatus(ended.status, end);
  end->set_reason(ReasonMessage(ended.reason));
  end->set_handed_off(ended.handed_off);
  end->set_transport(ended.transport);
  end->set_handoff_bytes(ended.handoff_bytes);
  end->set_cached_prompt_tokens(ended.cached_prompt_tokens);
  if (ended.speculation.steps > 0) {
    v1::Speculation* speculation = end->mutable_speculation();
    speculation->set_steps(ended.speculation.steps);
    speculation->set_drafted_tokens(ended.speculation.drafted_tokens);
    speculation->set_accepted_tokens(ended.speculation.accepted_tokens);
  }
  if (ended.preemptions.count == 0) return;
  v1::Scheduling* scheduling = end->mutable_scheduling();
  scheduling->set_preemptions(ended.preemptions.count);
  scheduling->set_recomputed_tokens(ended.preemptions.recomputed_tokens);
  scheduling->set_swapped_bytes(ended.preemptions.swapped_bytes);
  scheduling->set_preempted(absl::ToDoubleMilliseconds(ended.preemptions.time));
}

}  // namespace

std::map<uint64_t, v1::StepOutput> SplitByOwner(const engine::StepOutput& output) {
  std::map<uint64_t, v1::StepOutput> steps;
  for (const engine::StartOutput& started : output.started) {
    v1::PrefillStarted* start = steps[started.ref.owner].add_started();
    start->set_sequence_key(started.ref.key);
    start->set_start_unix_us(absl::ToUnixMicros(started.start));
    start->set_cached_prompt_tokens(started.cached_prompt_tokens);
  }
  for (const engine::PromptLogprobsOutput& scored : output.prompt_logprobs) {
    AddPromptLogprobs(scored, &steps[scored.ref.owner]);
  }
  for (const engine::SearchOutput& search : output.searches) {
    v1::SequenceTokens* begun = steps[search.ref.owner].add_tokens();
    begun->set_sequence_key(search.ref.key);
    begun->set_prefill_end_unix_us(absl::ToUnixMicros(search.prefill_end));
  }
  for (const engine::TokenOutput& token : output.tokens) {
    AddToken(token, &steps[token.ref.owner]);
  }
  for (const engine::EndOutput& end : output.ends) AddEnd(end, &steps[end.ref.owner]);
  return steps;
}

v1::SequenceEnd RefusedEnd(uint64_t sequence_key, const absl::Status& status) {
  v1::SequenceEnd end;
  end.set_sequence_key(sequence_key);
  SetStatus(status, &end);
  return end;
}

v1::PrefixChanges PrefixMessage(const prefix::Changes& changes) {
  v1::PrefixChanges message;
  message.set_reset(changes.reset);
  message.mutable_removed()->Add(changes.removed.begin(), changes.removed.end());
  message.mutable_added()->Add(changes.added.begin(), changes.added.end());
  return message;
}

v1::WorkerLoad LoadMessage(const engine::Load& load, const kv::KvLayout& layout,
                           uint64_t resident_bytes,
                           const std::optional<model::DeviceMemory>& device) {
  v1::WorkerLoad message;
  message.set_waiting_sequences(load.waiting_sequences);
  message.set_running_sequences(load.running_sequences);
  message.set_queued_prompt_tokens(load.queued_prompt_tokens);
  message.set_kv_blocks_total(load.kv_blocks_total);
  message.set_kv_blocks_free(load.kv_blocks_free);
  message.set_kv_blocks_requests(load.kv_blocks_requests);
  message.set_kv_blocks_transfers(load.kv_blocks_transfers);
  message.set_kv_blocks_prefix_cache(load.kv_blocks_prefix_cache);
  message.set_kv_block_tokens(kv::kBlockTokens);
  message.set_kv_bytes_total(uint64_t{load.kv_blocks_total} * layout.BlockBytes());
  message.set_resident_bytes(resident_bytes);
  message.set_kv_blocks_reclaimable(load.kv_blocks_reclaimable);
  message.set_prefix_lookup_tokens(load.prefix_lookup_tokens);
  message.set_prefix_hit_tokens(load.prefix_hit_tokens);
  message.set_prefix_evictions(load.prefix_evictions);
  message.set_steps(load.steps);
  message.set_prompt_tokens(load.prompt_tokens_computed);
  message.set_tokens(load.tokens_sampled);
  message.set_preemptions(load.preemptions);
  message.set_recomputed_tokens(load.recomputed_tokens);
  message.set_swapped_bytes(load.swapped_bytes);
  message.set_drafted_tokens(load.drafted_tokens);
  message.set_accepted_tokens(load.accepted_tokens);
  message.set_swap_bytes_used(load.swap_bytes_used);
  message.set_swap_bytes_total(load.swap_bytes_total);
  message.set_handoff_bytes(load.handoff_bytes);
  if (device) {
    v1::DeviceMemory* memory = message.mutable_device_memory();
    memory->set_total_bytes(device->total_bytes);
    memory->set_free_bytes(device->free_bytes);
    memory->set_weight_bytes(device->weight_bytes);
    memory->set_kv_bytes(device->kv_bytes);
    memory->set_step_bytes(device->step_bytes);
  }
  v1::StepCosts* costs = message.mutable_costs();
  costs->set_prompt_step(load.costs.prompt_step);
  costs->set_prompt_token(load.costs.prompt_token);
  costs->set_prompt_attended(load.costs.prompt_attended);
  costs->set_decode_step(load.costs.decode_step);
  costs->set_row(load.costs.row);
  costs->set_row_attended(load.costs.row_attended);
  return message;
}

}  // namespace baton::worker
