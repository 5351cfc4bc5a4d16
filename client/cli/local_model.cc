// SPDX-License-Identifier: Apache-2.0
#include "client/cli/local_model.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace baton::cli {

void ModelFlag::Register(config::CommandLine& line, const std::string& help) {
  line.Add("Model", "model", &flag_, help);
  line.AddPositional("MODEL", &positional_, "The same as --model");
}

absl::StatusOr<std::unique_ptr<checkpoint::Checkpoint>> ModelFlag::Open() const {
  if (positional_.size() + (flag_ ? 1 : 0) > 1) {
    return absl::InvalidArgumentError("give one model");
  }
  if (!given()) {
    return absl::InvalidArgumentError(
        "which model? Give --model PATH (a GGUF, safetensors or PyTorch file, or its folder) or "
        "--model embedded");
  }
  return checkpoint::OpenCheckpoint(flag_ ? *flag_ : positional_.front());
}

void ComputeFlags::Register(config::CommandLine& line) {
  line.AddChoice("Compute", "precision", &precision_, {"fast", "exact"},
                 "exact: float32 over dequantized weights");
  line.AddChoice("Compute", "weights", &weights_, model::WeightChoiceNames(),
                 "stored, or what F32, F16 and BF16 matrices become when they are packed");
  line.AddChoice("Compute", "kv-dtype", &kv_dtype_, {"auto", "bf16", "int8", "f32"},
                 "Type of the KV cache; auto: bf16 for fast, f32 for exact");
  line.Add("Compute", "threads", &threads_, "0: as many as affinity and cgroup quota allow");
  line.AddChoice("Compute", "isa", &isa_, model::IsaNames(), "Instruction set");
  line.Add("Compute", "packed-cache", &packed_cache_,
           "Folder of packed weights, shared with workers, or off; default: "
           "$BATON_CACHE_DIR/packed or ~/.cache/baton/packed");
  line.Add("Compute", "packed-cache-gib", &packed_cache_gib_,
           "Most GiB in that folder; what was not used for longest is removed");
}

absl::StatusOr<model::LoadOptions> ComputeFlags::Options() const {
  model::LoadOptions options;
  BATON_ASSIGN_OR_RETURN(options.precision, ParsePrecision(precision_));
  BATON_ASSIGN_OR_RETURN(options.weights, model::ParseWeightChoice(weights_));
  BATON_ASSIGN_OR_RETURN(options.kv_type, model::ParseKvChoice(kv_dtype_));
  options.threads = threads_;
  options.isa = isa_;
  options.cache.folder = model::PackedCacheFolder(packed_cache_);
  options.cache.limit_bytes = uint64_t{packed_cache_gib_} << 30;
  return options;
}

absl::StatusOr<model::Precision> ParsePrecision(const std::string& name) {
  if (name == "exact") return model::Precision::kExact;
  if (name == "fast") return model::Precision::kFast;
  return absl::InvalidArgumentError(
      absl::StrCat("precision must be fast or exact, got \"", name, "\""));
}

absl::StatusOr<std::vector<TokenId>> EncodeText(const checkpoint::Checkpoint& checkpoint,
                                                const std::string& text) {
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text is not valid UTF-8 at byte ", FirstInvalidUtf8(text)));
  }
  BATON_ASSIGN_OR_RETURN(const auto tokenizer, checkpoint.LoadTokenizer());
  if (tokenizer == nullptr) {
    return absl::FailedPreconditionError("the model has no tokenizer: give ids instead of text");
  }
  std::vector<TokenId> ids = tokenizer->prefix();
  const std::vector<TokenId> encoded = tokenizer->Encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

}  // namespace baton::cli
