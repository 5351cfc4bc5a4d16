// SPDX-License-Identifier: Apache-2.0
#include "common/kv/layout.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::kv {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Fails when a field differs; `ours` and `theirs` are anything StrCat takes.
template <typename T>
absl::Status CheckField(std::string_view field, const T& ours, const T& theirs) {
  if (ours == theirs) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("KV layouts differ in ", View(field),
                                                    ": ours is ", ours, ", theirs is ", theirs));
}

}  // namespace

std::string_view KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kBf16:
      return "bf16";
    case KvType::kInt8:
      return "int8";
  }
  return "unknown";
}

absl::StatusOr<KvType> ParseKvType(std::string_view name) {
  if (name == "f32") return KvType::kF32;
  if (name == "bf16") return KvType::kBf16;
  if (name == "int8") return KvType::kInt8;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown KV type \"", View(name), "\"; known are f32, bf16 and int8"));
}

size_t KvTypeBytes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kBf16:
      return 2;
    case KvType::kInt8:
      break;
  }
  return 1;
}

size_t KvScaleBytes(KvType type) { return type == KvType::kInt8 ? 2 : 0; }

absl::Status CheckCompatible(const KvLayout& ours, const KvLayout& theirs) {
  BATON_RETURN_IF_ERROR(
      CheckField("model_fingerprint", ours.model_fingerprint, theirs.model_fingerprint));
  BATON_RETURN_IF_ERROR(CheckField("model_variant", ours.model_variant, theirs.model_variant));
  BATON_RETURN_IF_ERROR(CheckField("layers", ours.layers, theirs.layers));
  BATON_RETURN_IF_ERROR(CheckField("kv_heads", ours.kv_heads, theirs.kv_heads));
  BATON_RETURN_IF_ERROR(CheckField("head_dim", ours.head_dim, theirs.head_dim));
  BATON_RETURN_IF_ERROR(CheckField("compute_id", ours.compute_id, theirs.compute_id));
  BATON_RETURN_IF_ERROR(
      CheckField("type", View(KvTypeName(ours.type)), View(KvTypeName(theirs.type))));
  BATON_RETURN_IF_ERROR(CheckField("slice_layout", ours.slice_layout, theirs.slice_layout));
  return CheckField("numerics_id", ours.numerics_id, theirs.numerics_id);
}

}  // namespace baton::kv
