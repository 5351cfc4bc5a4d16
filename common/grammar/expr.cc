// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/expr.h"

#include <algorithm>
#include <utility>

namespace baton::grammar {
namespace {

ExprPtr Make(Expr expr) { return std::make_shared<const Expr>(std::move(expr)); }

bool IsNothing(const ExprPtr& expr) { return expr->kind == ExprKind::kNothing; }
bool IsEmptyText(const ExprPtr& expr) {
  return expr->kind == ExprKind::kText && expr->text.empty();
}

}  // namespace

ExprPtr Nothing() {
  static const ExprPtr nothing = Make({});
  return nothing;
}

ExprPtr Text(std::string_view text) {
  return Make({.kind = ExprKind::kText, .text = std::string(text)});
}

ExprPtr Class(CharSet set) {
  if (set.empty()) return Nothing();
  return Make({.kind = ExprKind::kClass, .set = std::move(set)});
}

ExprPtr Sequence(std::vector<ExprPtr> parts) {
  if (std::any_of(parts.begin(), parts.end(), IsNothing)) return Nothing();
  std::vector<ExprPtr> flat;
  for (ExprPtr& part : parts) {
    if (IsEmptyText(part)) continue;
    if (part->kind == ExprKind::kText && !flat.empty() && flat.back()->kind == ExprKind::kText) {
      flat.back() = Text(flat.back()->text + part->text);
    } else {
      flat.push_back(std::move(part));
    }
  }
  if (flat.empty()) return Text("");
  if (flat.size() == 1) return flat.front();
  return Make({.kind = ExprKind::kSequence, .parts = std::move(flat)});
}

ExprPtr Choice(std::vector<ExprPtr> parts) {
  std::erase_if(parts, IsNothing);
  if (parts.empty()) return Nothing();
  if (parts.size() == 1) return parts.front();
  return Make({.kind = ExprKind::kChoice, .parts = std::move(parts)});
}

ExprPtr Repeat(ExprPtr part, uint32_t min, uint32_t max) {
  if (max == 0 || IsEmptyText(part)) return Text("");
  if (IsNothing(part)) return min == 0 ? Text("") : Nothing();
  if (min == 1 && max == 1) return part;
  return Make({.kind = ExprKind::kRepeat, .parts = {std::move(part)}, .min = min, .max = max});
}

ExprPtr Rule(uint32_t rule) { return Make({.kind = ExprKind::kRule, .rule = rule}); }

}  // namespace baton::grammar
