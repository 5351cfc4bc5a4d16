// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/lowering.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton::grammar {
namespace {

// Repeats of a single text or character up to this many are written out.
constexpr uint32_t kFew = 16;
// Targets of a loop's head that is not built yet.
constexpr uint32_t kOpen = UINT32_MAX;

bool IsSimple(const ExprPtr& expr) {
  return expr->kind == ExprKind::kClass || expr->kind == ExprKind::kText;
}

}  // namespace

Lowering::Lowering(const RuleSet& rules, uint32_t most_nodes, Program* program)
    : rules_(rules), most_nodes_(most_nodes), program_(program) {}

bool Lowering::full() const {
  return program_->nodes.size() > most_nodes_ || program_->edges.size() > most_nodes_ ||
         program_->targets.size() > most_nodes_;
}

absl::Status Lowering::Run() {
  end_ = Add({Op::kEnd, 0, 0});
  const auto count = static_cast<uint32_t>(rules_.rules.size());
  // Calls refer to these, which are filled in when the rule is lowered.
  for (uint32_t rule = 0; rule < count; ++rule) entries_.push_back(Add({Op::kSplit, kOpen, kOpen}));
  // Rules call those of higher numbers mostly: from the last one on, what is
  // called stands before its callers.
  for (uint32_t rule = count; rule-- > 0;) {
    const uint32_t body = Lower(rules_.rules[rule], end_);
    const Node entry = UnionOf({body});
    program_->nodes[entries_[rule]] = entry;
    if (full()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("it takes more than ", most_nodes_, " states"));
    }
  }
  program_->start = entries_[rules_.start];
  return absl::OkStatus();
}

uint32_t Lowering::Add(Node node) {
  program_->nodes.push_back(node);
  return static_cast<uint32_t>(program_->nodes.size() - 1);
}

uint32_t Lowering::AddBytes(std::vector<Edge> edges) {
  const auto begin = static_cast<uint32_t>(program_->edges.size());
  program_->edges.insert(program_->edges.end(), edges.begin(), edges.end());
  return Add({Op::kBytes, begin, static_cast<uint32_t>(program_->edges.size())});
}

void Lowering::Flatten(uint32_t node, std::vector<uint32_t>& flat) const {
  const Node& at = program_->nodes[node];
  if (at.op != Op::kSplit || at.begin == kOpen) {
    flat.push_back(node);
    return;
  }
  flat.insert(flat.end(), program_->targets.begin() + at.begin, program_->targets.begin() + at.end);
}

// Nodes that take bytes are joined into one: fewer alternatives at run time.
Node Lowering::UnionOf(const std::vector<uint32_t>& nodes) {
  if (full()) return {Op::kBytes, 0, 0};
  std::vector<uint32_t> flat;
  for (uint32_t node : nodes) Flatten(node, flat);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  std::vector<uint32_t> bytes, others;
  for (uint32_t node : flat) {
    (program_->nodes[node].op == Op::kBytes ? bytes : others).push_back(node);
  }
  if (bytes.size() > 1) {
    std::vector<Edge> edges;
    for (uint32_t node : bytes) {
      const Node& at = program_->nodes[node];
      edges.insert(edges.end(), program_->edges.begin() + at.begin,
                   program_->edges.begin() + at.end);
    }
    bytes = {AddBytes(std::move(edges))};
  }
  others.insert(others.end(), bytes.begin(), bytes.end());
  if (others.size() == 1 && program_->nodes[others[0]].op == Op::kBytes) {
    return program_->nodes[others[0]];
  }
  const auto begin = static_cast<uint32_t>(program_->targets.size());
  program_->targets.insert(program_->targets.end(), others.begin(), others.end());
  return {Op::kSplit, begin, static_cast<uint32_t>(program_->targets.size())};
}

uint32_t Lowering::AddUnion(std::vector<uint32_t> nodes) {
  if (nodes.size() == 1) return nodes[0];
  const Node node = UnionOf(nodes);
  return Add(node);
}

uint32_t Lowering::Lower(const ExprPtr& expr, uint32_t next) {
  if (full()) return next;  // given up: Run says so
  const auto key = std::make_pair(expr.get(), next);
  if (const auto known = lowered_.find(key); known != lowered_.end()) return known->second;
  const uint32_t node = LowerNew(expr, next);
  lowered_.emplace(key, node);
  return node;
}

uint32_t Lowering::LowerNew(const ExprPtr& expr, uint32_t next) {
  switch (expr->kind) {
    case ExprKind::kNothing:
      return AddBytes({});
    case ExprKind::kText:
      return LowerText(expr->text, next);
    case ExprKind::kClass:
      return LowerClass(expr->set, next);
    case ExprKind::kSequence:
      for (size_t i = expr->parts.size(); i-- > 0;) next = Lower(expr->parts[i], next);
      return next;
    case ExprKind::kChoice:
      return LowerChoice(expr->parts, next);
    case ExprKind::kRepeat:
      return LowerRepeat(*expr, next);
    case ExprKind::kRule:
      return Add({Op::kCall, entries_[expr->rule], next});
  }
  return next;
}

uint32_t Lowering::LowerText(const std::string& text, uint32_t next) {
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    next = AddBytes({{byte, byte, next}});
    if (full()) break;
  }
  return next;
}

uint32_t Lowering::LowerClass(const CharSet& set, uint32_t next) {
  return LowerSequences(Utf8Sequences(set), 0, next);
}

// The sequences are sorted, and ranges at `at` are equal or disjoint.
uint32_t Lowering::LowerSequences(std::span<const ByteSequence> sequences, uint32_t at,
                                  uint32_t next) {
  std::string tail;
  for (const ByteSequence& sequence : sequences) {
    for (uint32_t i = at; i < sequence.size; ++i) {
      tail.push_back(static_cast<char>(sequence.bytes[i].first));
      tail.push_back(static_cast<char>(sequence.bytes[i].last));
    }
    tail.push_back(static_cast<char>(sequence.size));
  }
  const auto key = std::make_pair(std::move(tail), next);
  if (const auto known = tails_.find(key); known != tails_.end()) return known->second;
  std::vector<Edge> edges;
  for (size_t begin = 0; begin < sequences.size();) {
    const ByteRange range = sequences[begin].bytes[at];
    size_t end = begin + 1;
    while (end < sequences.size() && sequences[end].bytes[at].first == range.first &&
           sequences[end].bytes[at].last == range.last) {
      ++end;
    }
    const bool last = sequences[begin].size == at + 1;
    const uint32_t target =
        last ? next : LowerSequences(sequences.subspan(begin, end - begin), at + 1, next);
    edges.push_back({range.first, range.last, target});
    begin = end;
  }
  const uint32_t node = AddBytes(std::move(edges));
  tails_.emplace(key, node);
  return node;
}

uint32_t Lowering::LowerChoice(const std::vector<ExprPtr>& parts, uint32_t next) {
  std::vector<std::string> texts;
  std::vector<uint32_t> nodes;
  for (const ExprPtr& part : parts) {
    if (part->kind == ExprKind::kText) {
      texts.push_back(part->text);
    } else {
      nodes.push_back(Lower(part, next));
    }
  }
  if (!texts.empty()) {
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    nodes.push_back(LowerTexts(texts, 0, next));
  }
  return AddUnion(std::move(nodes));
}

// A tree of what sorted texts, equal before `at`, have in common.
uint32_t Lowering::LowerTexts(std::span<const std::string> texts, size_t at, uint32_t next) {
  if (texts.size() == 1) return LowerText(texts[0].substr(at), next);
  const auto differs = std::mismatch(texts.front().begin(), texts.front().end(),
                                     texts.back().begin(), texts.back().end());
  const auto common = static_cast<size_t>(differs.first - texts.front().begin());
  if (common > at) {  // sorted: all have it
    return LowerText(texts[0].substr(at, common - at), LowerTexts(texts, common, next));
  }
  const bool ends = texts[0].size() == at;
  if (ends) texts = texts.subspan(1);
  std::vector<Edge> edges;
  while (!texts.empty() && !full()) {
    const char byte = texts[0][at];
    size_t end = 1;
    while (end < texts.size() && texts[end][at] == byte) ++end;
    edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte),
                     LowerTexts(texts.first(end), at + 1, next)});
    texts = texts.subspan(end);
  }
  const uint32_t node = AddBytes(std::move(edges));
  return ends ? AddUnion({node, next}) : node;
}

uint32_t Lowering::LowerRepeat(const Expr& repeat, uint32_t next) {
  const ExprPtr& part = repeat.parts[0];
  if (Nullable(part)) {
    // Any of the turns may be empty, so fewer that are not do as well.
    const ExprPtr full_turns = Repeat(WithoutEmpty(part), 0, repeat.max);
    made_.push_back(full_turns);
    return Lower(full_turns, next);
  }
  if (repeat.max == kNoLimit && repeat.min <= 1) return LowerEndless(part, next, repeat.min == 0);
  if (repeat.max == 1 || (repeat.max <= kFew && IsSimple(part))) return LowerFew(repeat, next);
  return LowerCounted(repeat, next);
}

uint32_t Lowering::LowerFew(const Expr& repeat, uint32_t next) {
  uint32_t node = next;
  for (uint32_t turn = repeat.max; turn > 0; --turn) {
    node = Lower(repeat.parts[0], node);
    if (turn > repeat.min) node = AddUnion({node, next});
  }
  return node;
}

uint32_t Lowering::LowerEndless(const ExprPtr& body, uint32_t next, bool may_skip) {
  const uint32_t head = Add({Op::kSplit, kOpen, kOpen});
  const uint32_t first = Lower(body, head);
  const Node node = UnionOf({first, next});
  program_->nodes[head] = node;
  return may_skip ? head : first;
}

uint32_t Lowering::LowerCounted(const Expr& repeat, uint32_t next) {
  const uint32_t body = Lower(repeat.parts[0], end_);
  const auto loop = static_cast<uint32_t>(program_->loops.size());
  program_->loops.push_back({body, next, repeat.min, repeat.max});
  const uint32_t node = Add({Op::kRepeat, loop, 0});
  return repeat.min == 0 ? AddUnion({node, next}) : node;
}

bool Lowering::Nullable(const ExprPtr& expr) {
  const auto known = nullable_.find(expr.get());
  if (known != nullable_.end()) return known->second;
  const auto& parts = expr->parts;
  const auto nullable = [this](const ExprPtr& part) { return Nullable(part); };
  bool result = false;
  switch (expr->kind) {
    case ExprKind::kText:
      result = expr->text.empty();
      break;
    case ExprKind::kSequence:
      result = std::all_of(parts.begin(), parts.end(), nullable);
      break;
    case ExprKind::kChoice:
      result = std::any_of(parts.begin(), parts.end(), nullable);
      break;
    case ExprKind::kRepeat:
      result = expr->min == 0 || Nullable(parts[0]);
      break;
    default:
      break;
  }
  made_.push_back(expr);  // its address stays its own
  nullable_.emplace(expr.get(), result);
  return result;
}

ExprPtr Lowering::WithoutEmpty(const ExprPtr& expr) {
  if (!Nullable(expr)) return expr;
  switch (expr->kind) {
    case ExprKind::kSequence: {
      // All parts may be empty: the first that is not is followed by the rest.
      std::vector<ExprPtr> choices;
      for (size_t i = 0; i < expr->parts.size(); ++i) {
        std::vector<ExprPtr> rest{WithoutEmpty(expr->parts[i])};
        rest.insert(rest.end(), expr->parts.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    expr->parts.end());
        choices.push_back(Sequence(std::move(rest)));
      }
      return Choice(std::move(choices));
    }
    case ExprKind::kChoice: {
      std::vector<ExprPtr> choices;
      for (const ExprPtr& part : expr->parts) choices.push_back(WithoutEmpty(part));
      return Choice(std::move(choices));
    }
    case ExprKind::kRepeat:
      return Repeat(WithoutEmpty(expr->parts[0]), 1, expr->max);
    default:
      return Nothing();
  }
}

}  // namespace baton::grammar
