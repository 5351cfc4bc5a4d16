// SPDX-License-Identifier: Apache-2.0
// The model "own-glm" as bytes of the executable. A small trained model in the
// ChatGLM2 architecture, made for this project: it serves a first start
// without a download, and tests.
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/file.h"

#define BATON_EMBED(symbol, file)                                                                  \
  __asm__(                                                                                         \
      ".section .rodata\n.balign 64\n"                                                             \
      ".hidden " #symbol "_begin\n.global " #symbol "_begin\n" #symbol                             \
      "_begin:\n.incbin \"" BATON_EMBEDDED_DIR "/" file                                            \
      "\"\n"                                                                                       \
      ".hidden " #symbol "_end\n.global " #symbol "_end\n" #symbol "_end:\n.byte 0\n.previous\n"); \
  extern "C" const std::byte symbol##_begin[], symbol##_end[];

BATON_EMBED(baton_embedded_config, "config.json")
BATON_EMBED(baton_embedded_model, "model.safetensors")
BATON_EMBED(baton_embedded_tokenizer, "tokenizer.model")

namespace baton::checkpoint {
namespace {

struct Embedded {
  std::string_view name;
  const std::byte* begin;
  const std::byte* end;
};

const std::array<Embedded, 3>& Files() {
  static const std::array<Embedded, 3> files = {{
      {"config.json", baton_embedded_config_begin, baton_embedded_config_end},
      {"model.safetensors", baton_embedded_model_begin, baton_embedded_model_end},
      {"tokenizer.model", baton_embedded_tokenizer_begin, baton_embedded_tokenizer_end},
  }};
  return files;
}

class EmbeddedFolder final : public Folder {
 public:
  std::string_view name() const override { return "own-glm"; }

  bool Has(std::string_view file) const override { return Open(file).ok(); }

  absl::StatusOr<File> Open(std::string_view file) const override {
    for (const Embedded& embedded : Files()) {
      if (embedded.name != file) continue;
      return File{.name = absl::StrCat("embedded/", std::string(file)),
                  .bytes = {embedded.begin, embedded.end},
                  .mapping = nullptr};
    }
    return absl::NotFoundError(absl::StrCat("embedded/", std::string(file), ": no such file"));
  }
};

}  // namespace

std::unique_ptr<Folder> OpenEmbeddedFolder() { return std::make_unique<EmbeddedFolder>(); }

}  // namespace baton::checkpoint
