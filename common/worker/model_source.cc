// SPDX-License-Identifier: Apache-2.0
#include "common/worker/model_source.h"

#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/cores/core_share.h"
#include "common/kv/layout.h"
#include "common/kv/memory_budget.h"
#include "common/model/fake/fake_model.h"
#include "common/model/gpu/gpu_model.h"
#include "common/model/head_decay.h"
#include "common/model/load.h"
#include "common/worker/kv_budget.h"

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

// Null when the cores are not to be shared, or cannot be.
std::shared_ptr<cores::CoreShare> ShareCores(const Options& options) {
  if (options.share_cores == "off") return nullptr;
  auto share = cores::CoreShare::Create(
      options.role == WorkerRole::kDecode ? cores::Kind::kDecode : cores::Kind::kPrefill);
  if (share.ok()) return *std::move(share);
  LogWarning("cores are not divided with other workers; they may slow each other down",
             {{"reason", std::string(share.status().message())}});
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<model::Model>> MakeModel(const Options& options,
                                                        model::StepProfile* profile) {
  BATON_ASSIGN_OR_RETURN(std::vector<model::HeadDecay> decay,
                         model::ParseHeadDecays(options.head_decay));
  if (options.model == "fake") {
    if (decay.empty()) return MakeFake(options);
    return absl::InvalidArgumentError("--head-decay: the fake model has no heads");
  }
  BATON_ASSIGN_OR_RETURN(const model::gpu::DeviceName device,
                         model::gpu::ParseDevice(options.device));
  BATON_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::OpenCheckpoint(options.model));
  model::LoadOptions load;
  load.precision =
      options.precision == "exact" ? model::Precision::kExact : model::Precision::kFast;
  BATON_ASSIGN_OR_RETURN(load.weights, model::ParseWeightChoice(options.weights));
  BATON_ASSIGN_OR_RETURN(load.kv_type, model::ParseKvChoice(options.kv_dtype));
  load.threads = options.threads;
  load.profile = profile;
  load.isa = options.isa;
  load.max_step_tokens = StepTokens(options);
  load.head_decay = std::move(decay);
  load.deterministic = options.deterministic;
  load.max_sequences = options.max_sequences;
  load.plan_kv_blocks = [&options](const kv::KvLayout& layout, uint32_t context_tokens) {
    return PlanKvBlocks({.tokens = options.kv_tokens, .memory = options.kv_memory}, layout,
                        context_tokens, kv::ReadMemoryBudget().available_bytes);
  };
  if (!device.cpu) return model::gpu::LoadGpuModel(*checkpoint, load, device);
  load.cores = ShareCores(options);
  load.cache.folder = model::PackedCacheFolder(options.packed_cache);
  load.cache.limit_bytes = uint64_t{options.packed_cache_gib} << 30;
  return model::LoadModel(*checkpoint, load);
}

absl::StatusOr<std::shared_ptr<const grammar::TokenTrie>> LoadVocabulary(const Options& options) {
  if (options.model == "fake") {
    return absl::FailedPreconditionError("the fake model has no tokenizer");
  }
  BATON_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::OpenCheckpoint(options.model));
  BATON_ASSIGN_OR_RETURN(const auto tokenizer, checkpoint->LoadTokenizer());
  if (tokenizer == nullptr) return absl::FailedPreconditionError("the model has no tokenizer");
  return grammar::TokenTrie::Of(*tokenizer);
}

}  // namespace baton::worker
