// SPDX-License-Identifier: Apache-2.0
#include "common/transport/layout_info.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace baton::transport {

void FillLayoutInfo(const kv::KvLayout& layout, baton::v1::KvLayoutInfo& info) {
  info.set_layers(layout.layers);
  info.set_kv_heads(layout.kv_heads);
  info.set_head_dim(layout.head_dim);
  info.set_block_tokens(kv::kBlockTokens);
  info.set_kv_type(std::string(kv::KvTypeName(layout.type)));
  info.set_slice_layout(layout.slice_layout);
  info.set_model_fingerprint(layout.model_fingerprint);
  info.set_numerics_id(layout.numerics_id);
}

absl::Status CheckLayoutInfo(const kv::KvLayout& ours, const baton::v1::KvLayoutInfo& theirs) {
  if (theirs.block_tokens() != kv::kBlockTokens) {
    return absl::FailedPreconditionError(absl::StrCat("KV layouts differ in block_tokens: ours ",
                                                      kv::kBlockTokens, ", theirs ",
                                                      theirs.block_tokens()));
  }
  const absl::StatusOr<kv::KvType> type = kv::ParseKvType(theirs.kv_type());
  if (!type.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("KV layouts differ in kv_type: ours ",
                                                      std::string(kv::KvTypeName(ours.type)),
                                                      ", theirs ", theirs.kv_type()));
  }
  kv::KvLayout layout;
  layout.layers = theirs.layers();
  layout.kv_heads = theirs.kv_heads();
  layout.head_dim = theirs.head_dim();
  layout.type = *type;
  layout.slice_layout = theirs.slice_layout();
  layout.model_fingerprint = theirs.model_fingerprint();
  layout.numerics_id = theirs.numerics_id();
  return kv::CheckCompatible(ours, layout);
}

}  // namespace baton::transport
