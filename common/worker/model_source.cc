// SPDX-License-Identifier: Apache-2.0
#include "common/worker/model_source.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/kv/layout.h"
#include "common/model/fake/fake_model.h"
#include "common/model/load.h"

namespace baton::worker {
namespace {

// Room for a whole prompt chunk beside a decode row of every other sequence.
uint32_t StepTokens(const Options& options) { return options.chunk_tokens + options.max_sequences; }

absl::StatusOr<std::unique_ptr<model::Model>> MakeFake(const Options& options) {
  model::FakeOptions fake;
  fake.context_tokens = options.fake.context;
  fake.max_step_tokens = StepTokens(options);
  fake.seed = options.fake.seed;
  fake.delay_per_step = options.fake.step_delay;
  fake.delay_per_token = options.fake.token_delay;
  return model::MakeFakeModel(fake);
}

}  // namespace

absl::StatusOr<std::unique_ptr<model::Model>> MakeModel(const Options& options) {
  if (options.model == "fake") return MakeFake(options);
  BATON_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::OpenCheckpoint(options.model));
  model::LoadOptions load;
  load.precision =
      options.precision == "exact" ? model::Precision::kExact : model::Precision::kFast;
  BATON_ASSIGN_OR_RETURN(load.kv_type, kv::ParseKvType(options.kv_dtype));
  load.threads = options.threads;
  load.isa = options.isa;
  load.max_step_tokens = StepTokens(options);
  return model::LoadModel(*checkpoint, load);
}

}  // namespace baton::worker
