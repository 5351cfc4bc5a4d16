// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/chat_template.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/family.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/fingerprint.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/gguf_tokenizer.h"
#include "common/checkpoint/hf_tokenizer.h"
#include "common/checkpoint/json.h"
#include "common/checkpoint/row_quant.h"
#include "common/checkpoint/shards.h"

namespace baton::checkpoint {
namespace {

namespace fs = std::filesystem;
using CheckpointOr = absl::StatusOr<std::unique_ptr<Checkpoint>>;

bool HasTensor(const std::vector<TensorView>& tensors, std::string_view name) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [name](const TensorView& tensor) { return tensor.name == name; });
}

// What both formats have in common.
class OpenedCheckpoint : public Checkpoint {
 public:
  OpenedCheckpoint(ModelConfig config, const TensorNames& names, std::vector<TensorView> tensors,
                   std::vector<File> files)
      : config_(std::move(config)),
        names_(names),
        tensors_(std::move(tensors)),
        files_(std::move(files)),
        fingerprint_(ComputeFingerprint(config_, tensors_)) {}

  const ModelConfig& config() const final { return config_; }
  const std::vector<TensorView>& tensors() const final { return tensors_; }
  absl::StatusOr<ModelWeights> Weights() const final {
    auto weights = MapWeights(config_, names_, tensors_);
    if (weights.ok()) return weights;
    return absl::Status(
        weights.status().code(),
        absl::StrCat(files_.front().name, ": ", std::string(weights.status().message())));
  }
  std::string Fingerprint() const final { return fingerprint_; }
  std::string SourceStamp() const final {
    std::string stamp;
    for (const File& file : files_) {
      absl::StrAppend(&stamp, stamp.empty() ? "" : " ", file.bytes.size(), "@", file.modified_ns);
    }
    return stamp;
  }
  void ReleasePages(const TensorView& tensor) const final {
    for (const File& file : files_) {
      if (file.mapping == nullptr || tensor.data.data() < file.bytes.data() ||
          tensor.data.data() >= file.bytes.data() + file.bytes.size()) {
        continue;
      }
      // Whole pages inside, relative to the mapping, which begins at a page.
      const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      const auto begin = static_cast<size_t>(tensor.data.data() - file.bytes.data());
      const size_t first = (begin + page - 1) / page * page;
      const size_t end = (begin + tensor.data.size()) / page * page;
      if (end <= first) return;
      madvise(const_cast<std::byte*>(file.bytes.data()) + first, end - first, MADV_DONTNEED);
    }
  }
  uint64_t file_bytes() const final {
    uint64_t bytes = 0;
    for (const File& file : files_) bytes += file.bytes.size();
    return bytes;
  }

 private:
  const ModelConfig config_;
  const TensorNames& names_;  // of a Family, which lives on
  const std::vector<TensorView> tensors_;
  const std::vector<File> files_;
  const std::string fingerprint_;
};

class GgufCheckpoint final : public OpenedCheckpoint {
 public:
  GgufCheckpoint(ModelConfig config, const TensorNames& names, GgufFile gguf, File file)
      : OpenedCheckpoint(std::move(config), names, std::move(gguf.tensors), {std::move(file)}),
        metadata_(std::move(gguf.metadata)) {}

  std::string_view format() const override { return "gguf"; }
  absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer() const override {
    auto tokenizer = LoadGgufTokenizer(metadata_, config());
    if (tokenizer.ok()) return tokenizer;
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat("tokenizer of ", metadata_.file(), ": ",
                                     std::string(tokenizer.status().message())));
  }
  absl::StatusOr<ChatFormat> DetectChatFormat() const override {
    constexpr const char* kTemplate = "tokenizer.chat_template";
    if (!HasGgufTokenizer(metadata_)) return ChatFormat{"raw", {}};
    BATON_ASSIGN_OR_RETURN(const std::string_view chat_template, metadata_.String(kTemplate, ""));
    if (!chat_template.empty()) return RecognizeChatTemplate(chat_template, metadata_.file());
    if (config().architecture != "chatglm") return ChatFormat{"raw", {}};
    BATON_ASSIGN_OR_RETURN(const auto* tokens, metadata_.Strings("tokenizer.ggml.tokens"));
    const bool has_roles =
        tokens != nullptr && std::find(tokens->begin(), tokens->end(), "<|user|>") != tokens->end();
    return ChatFormat{has_roles ? "chatglm3" : "chatglm2", {}};
  }

 private:
  const GgufMetadata metadata_;
};

class HfCheckpoint final : public OpenedCheckpoint {
 public:
  HfCheckpoint(ModelConfig config, const TensorNames& names, std::vector<TensorView> tensors,
               std::vector<File> files, std::unique_ptr<Folder> folder, std::string_view format)
      : OpenedCheckpoint(std::move(config), names, std::move(tensors), std::move(files)),
        folder_(std::move(folder)),
        format_(format) {}

  std::string_view format() const override { return format_; }
  absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer() const override {
    return LoadHfTokenizer(*folder_, config());
  }
  absl::StatusOr<ChatFormat> DetectChatFormat() const override {
    return DetectHfChatFormat(*folder_, config());
  }

 private:
  const std::unique_ptr<Folder> folder_;
  const std::string_view format_;  // of a WeightFormat, which lives on
};

CheckpointOr OpenGguf(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(File file, MapFile(path));
  BATON_ASSIGN_OR_RETURN(GgufFile gguf, ReadGguf(file));
  BATON_ASSIGN_OR_RETURN(const std::string_view architecture,
                         gguf.metadata.String("general.architecture", std::nullopt));
  BATON_ASSIGN_OR_RETURN(const Family* family, FindFamilyByGgufArchitecture(architecture));
  BATON_ASSIGN_OR_RETURN(ModelConfig config, family->parse_gguf(gguf.metadata));
  const TensorNames& names = family->gguf_names;
  // GGUF says these two by the tensors that are there.
  config.tied_head = !HasTensor(gguf.tensors, absl::StrCat(std::string(names.head), ".weight"));
  config.qkv_bias = HasTensor(
      gguf.tensors, absl::StrCat(std::string(names.layer_prefix), "0.",
                                 std::string(names.qkv.empty() ? names.q : names.qkv), ".bias"));
  config.name = fs::path(path).stem().string();
  BATON_RETURN_IF_ERROR(CheckConfig(config, path));
  return std::make_unique<GgufCheckpoint>(std::move(config), names, std::move(gguf),
                                          std::move(file));
}

// generation_config.json often lists more end tokens than config.json.
absl::Status AddGenerationEndTokens(const Folder& folder, ModelConfig& config) {
  constexpr char kFile[] = "generation_config.json";
  if (!folder.Has(kFile)) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const File file, folder.Open(kFile));
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(file.text(), file.name));
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                         HfEndTokens(JsonFields(json, file.name), config.vocabulary));
  for (TokenId id : more) {
    if (std::find(config.end_tokens.begin(), config.end_tokens.end(), id) ==
        config.end_tokens.end()) {
      config.end_tokens.push_back(id);
    }
  }
  return absl::OkStatus();
}

// `weights` is a file of the folder in that format; the folder's default when empty.
CheckpointOr OpenHf(std::unique_ptr<Folder> folder, std::string name, const WeightFormat& format,
                    const std::string& weights) {
  BATON_ASSIGN_OR_RETURN(const File config_file, folder->Open("config.json"));
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(config_file.text(), config_file.name));
  const JsonFields fields(json, config_file.name);
  BATON_ASSIGN_OR_RETURN(const std::string model_type, fields.String("model_type", ""));
  BATON_ASSIGN_OR_RETURN(const Family* family, FindFamilyByHfType(model_type));
  BATON_ASSIGN_OR_RETURN(ModelConfig config, family->parse_hf(fields));
  config.name = std::move(name);
  BATON_RETURN_IF_ERROR(AddGenerationEndTokens(*folder, config));
  BATON_RETURN_IF_ERROR(CheckConfig(config, config_file.name));

  std::vector<File> files;
  std::vector<TensorView> tensors;
  if (weights.empty()) {
    BATON_ASSIGN_OR_RETURN(tensors, ReadShards(*folder, format, files));
  } else {
    BATON_ASSIGN_OR_RETURN(files.emplace_back(), folder->Open(weights));
    BATON_ASSIGN_OR_RETURN(tensors, format.read(files.front()));
  }
  if (const absl::Status joined = JoinRowScales(config.row_quant_bits, tensors); !joined.ok()) {
    return absl::Status(joined.code(),
                        absl::StrCat(files.front().name, ": ", std::string(joined.message())));
  }
  return std::make_unique<HfCheckpoint>(std::move(config), family->hf_names, std::move(tensors),
                                        std::move(files), std::move(folder), format.name);
}

std::string FolderName(const fs::path& folder) {
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(fs::absolute(folder, error), error);
  return absolute.filename().string();
}

CheckpointOr OpenFolder(const fs::path& path) {
  auto folder = OpenDiskFolder(path.string());
  if (const WeightFormat* format = FindWeightFormat(*folder); format != nullptr) {
    return OpenHf(std::move(folder), FolderName(path), *format, "");
  }
  std::vector<std::string> ggufs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".gguf") ggufs.push_back(entry.path().string());
  }
  if (ggufs.size() == 1) return OpenGguf(ggufs.front());
  if (ggufs.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path.string(),
                     ": holds neither model.safetensors, pytorch_model.bin, the index of one "
                     "of them, nor a .gguf file"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path.string(), ": holds ", ggufs.size(), " .gguf files; name one of them"));
}

}  // namespace

CheckpointOr OpenCheckpoint(const std::string& path) {
  if (path == "embedded") {
    auto folder = OpenEmbeddedFolder();
    std::string name(folder->name());
    return OpenHf(std::move(folder), std::move(name), kSafetensorsFormat, "");
  }
  const fs::path file(path);
  std::error_code error;
  const auto status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file or folder"));
  }
  if (fs::is_directory(status)) return OpenFolder(file);
  if (file.extension() == ".gguf") return OpenGguf(path);
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  for (const WeightFormat* format : {&kSafetensorsFormat, &kTorchFormat}) {
    const bool index = file.filename() == format->index;
    if (!index && file.extension() != format->extension) continue;
    return OpenHf(OpenDiskFolder(parent.string()), FolderName(parent), *format,
                  index ? "" : file.filename().string());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": not a checkpoint; expected a .gguf, .safetensors or .bin file, or a folder"));
}

}  // namespace baton::checkpoint
