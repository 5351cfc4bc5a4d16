// SPDX-License-Identifier: Apache-2.0
#include "common/kv/convert/layer_converter.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/packing/kv_convert.h"
#include "kernels/packing/kv_slices.h"

namespace baton::kv {
namespace {

using kernels::KvElement;

static_assert(kernels::kBlockTokens == kBlockTokens);

// Of the type in the layout that all backends share.
std::string_view SharedLayout(KvType type) {
  switch (type) {
    case KvType::kF32:
      return kernels::kF32SliceLayout;
    case KvType::kBf16:
      break;
    case KvType::kInt8:
      return kernels::kInt8SliceLayout;
  }
  return kernels::kBf16SliceLayout;
}

KvElement ElementOf(KvType type) {
  switch (type) {
    case KvType::kF32:
      return KvElement::kF32;
    case KvType::kBf16:
      break;
    case KvType::kInt8:
      return KvElement::kInt8;
  }
  return KvElement::kBf16;
}

absl::Status CheckShared(const KvLayout& layout) {
  if (layout.slice_layout == SharedLayout(layout.type)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("KV of slice layout ", layout.slice_layout, " cannot be converted"));
}

}  // namespace

absl::StatusOr<LayerConverter> LayerConverter::Create(const KvLayout& from, const KvLayout& to) {
  BATON_RETURN_IF_ERROR(CheckShared(from));
  BATON_RETURN_IF_ERROR(CheckShared(to));
  if (from.kv_heads != to.kv_heads || from.head_dim != to.head_dim) {
    return absl::FailedPreconditionError(absl::StrCat("KV of ", from.kv_heads, " heads of ",
                                                      from.head_dim, " cannot be converted to ",
                                                      to.kv_heads, " of ", to.head_dim));
  }
  return LayerConverter(ElementOf(from.type), ElementOf(to.type), to.kv_heads, to.head_dim);
}

void LayerConverter::Convert(const std::byte* from, std::byte* to) const {
  const size_t from_bytes = kernels::KvSliceBytes(from_, head_dim_);
  const size_t to_bytes = kernels::KvSliceBytes(to_, head_dim_);
  for (uint32_t head = 0; head < kv_heads_; ++head, from += from_bytes, to += to_bytes) {
    kernels::ConvertKeys(from_, from, to_, head_dim_, to);
  }
  for (uint32_t head = 0; head < kv_heads_; ++head, from += from_bytes, to += to_bytes) {
    kernels::ConvertValues(from_, from, to_, head_dim_, to);
  }
}

bool IsConvertible(const KvLayout& layout) { return CheckShared(layout).ok(); }

absl::StatusOr<KvLayout> StoredAs(const KvLayout& layout, KvType type) {
  KvLayout stored = layout;
  if (type == layout.type) return stored;
  stored.type = type;
  stored.slice_layout = std::string(SharedLayout(type));
  BATON_RETURN_IF_ERROR(LayerConverter::Create(layout, stored).status());
  return stored;
}

absl::StatusOr<KvOrigin> CheckHandoff(const KvLayout& ours, const KvLayout& theirs) {
  const absl::Status equal = CheckCompatible(ours, theirs);
  if (equal.ok()) return KvOrigin::kOwn;
  KvLayout mended = theirs;  // as if it were converted
  mended.type = ours.type;
  mended.slice_layout = ours.slice_layout;
  mended.compute_id = ours.compute_id;
  mended.numerics_id = ours.numerics_id;
  BATON_RETURN_IF_ERROR(CheckCompatible(ours, mended));
  if (absl::Status convertible = LayerConverter::Create(theirs, ours).status(); !convertible.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(std::string(equal.message()), "; ", std::string(convertible.message())));
  }
  const bool same_kernels = ours.compute_id == theirs.compute_id && ours.type != theirs.type;
  return same_kernels ? KvOrigin::kConverted : KvOrigin::kMixed;
}

}  // namespace baton::kv
