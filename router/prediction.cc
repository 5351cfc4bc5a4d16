// SPDX-License-Identifier: Apache-2.0
#include "router/prediction.h"

#include <algorithm>

namespace baton::router {
namespace {

uint32_t Tokens(uint64_t count) {
  return static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX / 2));
}

absl::Duration PromptTime(const sched::StepCosts& costs, uint64_t cached, uint64_t tokens) {
  return costs.Prompt(Tokens(cached), Tokens(tokens), kChunkTokens);
}

// Prompts of a common length: how long each that waits is, is not known here.
absl::Duration QueueTime(const sched::StepCosts& costs, uint64_t tokens) {
  const auto whole = static_cast<int64_t>(tokens / kChunkTokens);
  const uint64_t rest = tokens % kChunkTokens;
  const absl::Duration time = whole * PromptTime(costs, 0, kChunkTokens);
  return rest == 0 ? time : time + PromptTime(costs, 0, rest);
}

// One decode step with all that run there and one more.
absl::Duration DecodeStep(const sched::StepCosts& costs, uint32_t rows, uint64_t context) {
  sched::StepShape shape;
  shape.rows = rows + 1;
  shape.rows_attended = static_cast<double>(context) * shape.rows;
  return costs.Step(shape);
}

}  // namespace

sched::StepCosts CostsOf(const Worker& worker) {
  const v1::StepCosts& wire = worker.load.costs();
  const auto sound = [](double seconds) { return seconds > 0 && seconds < 3600 ? seconds : 0; };
  return {.prompt_step = sound(wire.prompt_step()),
          .prompt_token = sound(wire.prompt_token()),
          .prompt_attended = sound(wire.prompt_attended()),
          .decode_step = sound(wire.decode_step()),
          .row = sound(wire.row()),
          .row_attended = sound(wire.row_attended())};
}

std::optional<absl::Duration> PromptTime(const Worker& worker, uint64_t cached, uint64_t tokens) {
  const sched::StepCosts costs = CostsOf(worker);
  if (!costs.knows_prompts()) return std::nullopt;
  return PromptTime(costs, cached, tokens);
}

absl::Duration QueueTime(const Worker& worker) {
  return QueueTime(CostsOf(worker), worker.queued_prompt_tokens());
}

std::optional<Prediction> Predict(const Ways& ways) {
  const sched::StepCosts prefill = CostsOf(*ways.prefill);
  if (!prefill.knows_prompts()) return std::nullopt;
  sched::StepCosts decode = CostsOf(*ways.decode);
  if (!decode.knows_prompts()) {
    decode.prompt_step = prefill.prompt_step;
    decode.prompt_token = prefill.prompt_token;
    decode.prompt_attended = prefill.prompt_attended;
  }
  const uint64_t cached_prefill = ways.prompt_tokens - ways.prefill_tokens;
  const uint64_t cached_local = ways.prompt_tokens - ways.local_tokens;
  const uint32_t rows = ways.decode->sequences();
  const absl::Duration step = DecodeStep(decode, rows, ways.prompt_tokens);
  // Decode rows are in the steps of a local prompt as well.
  const auto steps = static_cast<int64_t>((ways.local_tokens + kChunkTokens - 1) / kChunkTokens);
  Prediction prediction;
  prediction.split = QueueTime(*ways.prefill) +
                     PromptTime(prefill, cached_prefill, ways.prefill_tokens) + ways.handoff + step;
  prediction.local = QueueTime(decode, ways.decode->queued_prompt_tokens()) +
                     PromptTime(decode, cached_local, ways.local_tokens) +
                     (rows > 0 ? steps * step : absl::ZeroDuration()) + step;
  prediction.stall =
      PromptTime(decode, cached_local, std::min<uint64_t>(ways.local_tokens, kChunkTokens));
  return prediction;
}

}  // namespace baton::router
