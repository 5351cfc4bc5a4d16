// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/speed.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <span>

#include "absl/strings/str_cat.h"
#include "client/cli/sequence_runner.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampler.h"

namespace baton::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Which id each place of the work gets.
constexpr size_t kPoolSize = 65536;
constexpr uint32_t kStepStride = 31;
// The first and last ids of a vocabulary tend to be special.
constexpr uint32_t kMargin = 100;

std::vector<TokenId> MakePool(uint32_t vocabulary) {
  const bool small = vocabulary <= 2 * kMargin;
  const uint32_t low = small ? 0 : kMargin;
  const uint32_t count = small ? vocabulary : vocabulary - 2 * kMargin;
  std::mt19937_64 random(1);
  std::vector<TokenId> pool(kPoolSize);
  for (TokenId& id : pool) id = low + static_cast<TokenId>(random() % count);
  return pool;
}

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs the two kinds of work and times them.
class SpeedRun final {
 public:
  SpeedRun(model::Model* model, SequenceRunner* runner, const SpeedOptions& options)
      : model_(model), runner_(runner), options_(options), pool_(MakePool(runner->vocabulary())) {}

  // Tokens per second, once.
  absl::StatusOr<double> Prompt() {
    std::vector<float> row(runner_->vocabulary());
    const Clock::time_point begin = Start();
    BATON_RETURN_IF_ERROR(runner_->Prefill(0, std::span(pool_).first(options_.prompt_tokens), row));
    return options_.prompt_tokens / SecondsSince(begin);
  }

  absl::StatusOr<double> Decode(uint32_t batch) {
    const uint32_t context = options_.decode_context;
    // Steps write behind the context: it is computed once.
    for (; prefilled_ < batch; ++prefilled_) {
      const auto prefix = std::span(pool_).subspan(size_t{prefilled_} * context, context);
      BATON_RETURN_IF_ERROR(runner_->Prefill(prefilled_, prefix, {}));
    }
    std::vector<float> logits(size_t{batch} * runner_->vocabulary());
    const Clock::time_point begin = Start();
    for (uint32_t k = 0; k < options_.decode_steps; ++k) {
      const auto tokens = std::span(pool_).subspan(size_t{k + 1} * kStepStride, batch);
      BATON_RETURN_IF_ERROR(runner_->Step(tokens, context + k, logits));
      BATON_RETURN_IF_ERROR(Choose(logits, batch));
    }
    return batch * options_.decode_steps / SecondsSince(begin);
  }

 private:
  // What came before, such as contexts, does not count.
  Clock::time_point Start() const {
    if (options_.profile != nullptr) options_.profile->Reset();
    return Clock::now();
  }

  // The greedy choice belongs to the work of decoding, done as a worker does it.
  absl::Status Choose(std::span<const float> logits, uint32_t batch) {
    const sampling::Params greedy{.temperature = 0};
    std::vector<absl::Status> chosen(batch);
    model_->ForEach(batch, [&](uint32_t s) {
      chosen[s] = sampling::SampleToken(
                      logits.subspan(size_t{s} * runner_->vocabulary(), runner_->vocabulary()),
                      model_->info().usable_vocabulary, {}, greedy)
                      .status();
    });
    for (const absl::Status& status : chosen) BATON_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  model::Model* model_;
  SequenceRunner* runner_;
  const SpeedOptions& options_;
  std::vector<TokenId> pool_;
  uint32_t prefilled_ = 0;  // sequences whose context stands in the cache
};

absl::Status CheckOptions(const model::Model& model, const SpeedOptions& options) {
  if (options.prompt_tokens == 0 || options.decode_steps == 0 || options.repetitions == 0) {
    return absl::InvalidArgumentError("--pp, --tg and --reps must be at least 1");
  }
  if (options.decode_context == 0 || options.decode_context > kPoolSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tg-context must be 1 to ", kPoolSize, ", got ", options.decode_context));
  }
  if (options.batches.empty()) return absl::InvalidArgumentError("--batch names no batch size");
  for (uint32_t batch : options.batches) {
    const uint64_t most =
        std::min<uint64_t>(model.max_step_tokens(), kPoolSize / options.decode_context);
    if (batch == 0 || batch > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("--batch must be 1 to ", most, ", got ", batch));
    }
  }
  const uint32_t widest = *std::max_element(options.batches.begin(), options.batches.end());
  const uint64_t last = (uint64_t{options.decode_steps} + 1) * kStepStride + widest;
  if (options.prompt_tokens > kPoolSize || last > kPoolSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pp must be at most ", kPoolSize, " and --tg at most ",
                     kPoolSize / kStepStride - 1 - widest / kStepStride - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SpeedResult>> MeasureSpeed(
    model::Model* model, const SpeedOptions& options,
    const std::function<void(const SpeedResult&)>& progress) {
  BATON_RETURN_IF_ERROR(CheckOptions(*model, options));
  const uint32_t widest = *std::max_element(options.batches.begin(), options.batches.end());
  BATON_ASSIGN_OR_RETURN(
      SequenceRunner runner,
      SequenceRunner::Create(
          model, widest,
          std::max(options.prompt_tokens, options.decode_context + options.decode_steps)));
  SpeedRun run(model, &runner, options);
  std::vector<SpeedResult> results;
  const auto best_of = [&](SpeedResult result, const auto& once) -> absl::Status {
    for (uint32_t i = 0; i < options.repetitions; ++i) {
      BATON_ASSIGN_OR_RETURN(const double speed, once());
      if (speed <= result.tokens_per_second) continue;
      result.tokens_per_second = speed;
      if (options.profile != nullptr) result.profile = *options.profile;
    }
    results.push_back(std::move(result));
    if (progress) progress(results.back());
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(
      best_of({.name = absl::StrCat("prompt", options.prompt_tokens),
               .tokens = options.prompt_tokens,
               .work = PromptWork(options.prompt_tokens, model->max_step_tokens())},
              [&] { return run.Prompt(); }));
  for (uint32_t batch : options.batches) {
    // Steps see more and more: as many as the one in the middle, on average.
    const double seen = options.decode_context + (options.decode_steps + 1) / 2.0;
    BATON_RETURN_IF_ERROR(best_of(
        {.name = absl::StrCat("decode", batch), .tokens = batch, .work = DecodeWork(batch, seen)},
        [&] { return run.Decode(batch); }));
  }
  return results;
}

}  // namespace baton::cli
