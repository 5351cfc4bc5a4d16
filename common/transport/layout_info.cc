// SPDX-License-Identifier: Apache-2.0
#include "common/transport/layout_info.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::transport {
namespace {

// A type of the hello. FAILED_PRECONDITION: this build does not know it.
absl::StatusOr<kv::KvType> KnownType(const char* field, const std::string& name,
                                     const kv::KvLayout& ours) {
  const absl::StatusOr<kv::KvType> type = kv::ParseKvType(name);
  if (type.ok()) return *type;
  return absl::FailedPreconditionError(absl::StrCat("KV layouts differ in ", field, ": ours is ",
                                                    std::string(kv::KvTypeName(ours.type)),
                                                    ", theirs is ", name));
}

absl::StatusOr<kv::KvLayout> TheirLayout(const kv::KvLayout& ours,
                                         const baton::v1::KvLayoutInfo& theirs) {
  if (theirs.block_tokens() != kv::kBlockTokens) {
    return absl::FailedPreconditionError(absl::StrCat("KV layouts differ in block_tokens: ours is ",
                                                      kv::kBlockTokens, ", theirs is ",
                                                      theirs.block_tokens()));
  }
  kv::KvLayout layout;
  BATON_ASSIGN_OR_RETURN(layout.type, KnownType("kv_type", theirs.kv_type(), ours));
  layout.layers = theirs.layers();
  layout.kv_heads = theirs.kv_heads();
  layout.head_dim = theirs.head_dim();
  layout.slice_layout = theirs.slice_layout();
  layout.model_fingerprint = theirs.model_fingerprint();
  layout.model_variant = theirs.model_variant();
  layout.compute_id = theirs.compute_id();
  layout.numerics_id = theirs.numerics_id();
  return layout;
}

}  // namespace

void FillLayoutInfo(const kv::KvLayout& layout, baton::v1::KvLayoutInfo& info) {
  info.set_layers(layout.layers);
  info.set_kv_heads(layout.kv_heads);
  info.set_head_dim(layout.head_dim);
  info.set_block_tokens(kv::kBlockTokens);
  info.set_kv_type(std::string(kv::KvTypeName(layout.type)));
  info.set_slice_layout(layout.slice_layout);
  info.set_model_fingerprint(layout.model_fingerprint);
  info.set_model_variant(layout.model_variant);
  info.set_numerics_id(layout.numerics_id);
  info.set_compute_id(layout.compute_id);
}

void FillWireInfo(const kv::KvLayout& layout, const kv::KvLayout& wire,
                  baton::v1::HandoffHello& hello) {
  if (wire.type == layout.type && wire.slice_layout == layout.slice_layout) return;
  hello.set_wire_kv_type(std::string(kv::KvTypeName(wire.type)));
  hello.set_wire_slice_layout(wire.slice_layout);
}

absl::StatusOr<IncomingFormat> PlanIncoming(const kv::KvLayout& ours,
                                            const baton::v1::HandoffHello& hello) {
  BATON_ASSIGN_OR_RETURN(kv::KvLayout wire, TheirLayout(ours, hello.layout()));
  IncomingFormat format;
  BATON_ASSIGN_OR_RETURN(format.origin, kv::CheckHandoff(ours, wire));
  if (!hello.wire_kv_type().empty()) {
    BATON_ASSIGN_OR_RETURN(wire.type, KnownType("wire_kv_type", hello.wire_kv_type(), ours));
    wire.slice_layout = hello.wire_slice_layout();
  }
  format.wire_bytes = wire.LayerBytes();
  if (!hello.wire_kv_type().empty() && format.origin == kv::KvOrigin::kOwn) {
    format.origin = kv::KvOrigin::kConverted;
  }
  if (wire.type != ours.type || wire.slice_layout != ours.slice_layout) {
    BATON_ASSIGN_OR_RETURN(format.converter, kv::LayerConverter::Create(wire, ours));
  }
  return format;
}

}  // namespace baton::transport
