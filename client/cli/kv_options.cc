// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kv_options.h"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/table.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

constexpr uint32_t kQueriesPerGroup = 8;  // of grouped-query attention
constexpr kv::Window kWindow{.tokens = 1024, .sinks = 32};

struct Shape {
  std::string name;
  uint32_t layers, heads, kv_heads, head_dim;
};

std::vector<Shape> Shapes(const KvQuestion& question) {
  std::vector<Shape> shapes;
  if (question.layers > 0) {
    shapes.push_back(
        {"as asked", question.layers, question.kv_heads, question.kv_heads, question.head_dim});
  }
  shapes.push_back({"GPT-3", 96, 96, 96, 128});
  shapes.push_back({"Llama-2-7B", 32, 32, 32, 128});
  shapes.push_back({"ChatGLM2-6B", 28, 32, 2, 128});
  return shapes;
}

std::string HeadsName(const Shape& shape, uint32_t kv_heads) {
  if (kv_heads == shape.kv_heads) return absl::StrCat(kv_heads, " (own)");
  return absl::StrCat(kv_heads, kv_heads == shape.heads ? " (MHA)" : " (GQA)");
}

std::string WindowName(const kv::Window& window) {
  if (!window.limited()) return "all";
  std::string name = absl::StrCat(window.tokens, " + ", window.sinks);
  if (window.stride > 0) absl::StrAppend(&name, ", stride ", window.stride);
  if (window.keep.front().end > 0) absl::StrAppend(&name, ", ranges");
  return name;
}

absl::Status AddRows(const Shape& shape, const KvQuestion& asked,
                     std::vector<std::vector<std::string>>& rows) {
  const std::set<uint32_t, std::greater<>> choices = {
      shape.heads, std::max(1u, shape.heads / kQueriesPerGroup), shape.kv_heads};
  for (const uint32_t kv_heads : choices) {
    for (const kv::KvType type : {kv::KvType::kBf16, kv::KvType::kInt8}) {
      for (const bool windowed : {false, true}) {
        KvQuestion question{.layers = shape.layers,
                            .kv_heads = kv_heads,
                            .head_dim = shape.head_dim,
                            .type = type,
                            .context = asked.context};
        if (windowed) {
          question.window = asked.window.limited() ? asked.window : kWindow;
          question.prompt = asked.prompt;
        }
        BATON_ASSIGN_OR_RETURN(const KvAnswer answer, ComputeKv(question));
        rows.push_back({shape.name, absl::StrCat(shape.layers), HeadsName(shape, kv_heads),
                        absl::StrCat(shape.head_dim), std::string(kv::KvTypeName(type)),
                        WindowName(question.window), absl::StrCat(answer.bytes_per_token),
                        FormatBothUnits(answer.needed_bytes)});
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> KvOptionsTable(const KvQuestion& question) {
  std::vector<std::vector<std::string>> rows;
  for (const Shape& shape : Shapes(question)) {
    BATON_RETURN_IF_ERROR(AddRows(shape, question, rows));
  }
  return FormatTable({"shape", "layers", "KV heads", "head size", "type", "window + sinks",
                      "bytes per token", absl::StrCat(question.context, " tokens")},
                     rows);
}

}  // namespace baton::cli
