// SPDX-License-Identifier: Apache-2.0
#include "client/cli/random_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/half_float.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/checkpoint/family.h"

namespace baton::cli {
namespace {

using checkpoint::ModelConfig;
using checkpoint::TensorNames;
using checkpoint::TensorType;

constexpr uint64_t kAlignment = 32;  // GGUF's default
constexpr size_t kPieceBlocks = size_t{1} << 16;
constexpr uint32_t kBlockValues = 32;

// Weyl sequence and finalizer of Steele et al., 2014, "Fast Splittable
// Pseudorandom Number Generators".
class Random final {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(Mix(seed) ^ Mix(~stream)) {}
  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15); }

 private:
  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// Deviation of the sum of two numbers drawn evenly from `values` whole ones.
double SumDeviation(double values) { return std::sqrt((values * values - 1) / 6); }

// Makes blocks of 32 values of one type with deviation `deviation`. Each value
// is a sum of two even ones: a triangle is bell enough.
class BlockMaker final {
 public:
  BlockMaker(TensorType type, double deviation)
      : type_(type),
        bytes_(checkpoint::TensorBlock(type).bytes * kBlockValues /
               checkpoint::TensorBlock(type).values) {
    const double unit = deviation / SumDeviation(type == TensorType::kQ4_0 ? 8 : 64);
    scale_ = FloatToHalf(static_cast<float>(unit));
    for (int i = 0; i < 127; ++i) halves_[i] = FloatToHalf(static_cast<float>((i - 63) * unit));
  }

  size_t bytes() const { return bytes_; }

  void Make(Random& random, std::byte* out) const {
    if (type_ != TensorType::kF16) {
      std::memcpy(out, &scale_, sizeof scale_);
      out += sizeof scale_;
    }
    if (type_ == TensorType::kQ4_0) return MakeNibbles(random, out);
    for (uint32_t first = 0; first < kBlockValues; first += 8) {
      // Eight sums from 0 to 126 side by side.
      constexpr uint64_t kLow6 = 0x3f3f3f3f3f3f3f3f;
      uint64_t sums = (random.Next() & kLow6) + (random.Next() & kLow6);
      for (uint32_t i = first; i < first + 8; ++i, sums >>= 8) {
        const auto sum = static_cast<int>(sums & 0xff);
        if (type_ == TensorType::kF16) {
          std::memcpy(out + i * sizeof(uint16_t), &halves_[sum], sizeof(uint16_t));
        } else {
          out[i] = static_cast<std::byte>(sum - 63);
        }
      }
    }
  }

 private:
  // Sixteen sums from 1 to 15 side by side; 8 stands for zero.
  static void MakeNibbles(Random& random, std::byte* out) {
    constexpr uint64_t kLow3 = 0x7777777777777777, kOnes = 0x1111111111111111;
    for (uint32_t half = 0; half < 2; ++half) {
      const uint64_t sums = (random.Next() & kLow3) + (random.Next() & kLow3) + kOnes;
      std::memcpy(out + half * sizeof sums, &sums, sizeof sums);
    }
  }

  const TensorType type_;
  const size_t bytes_;
  uint16_t scale_ = 0;
  uint16_t halves_[127] = {};
};

struct TensorPlan {
  std::string name;
  std::vector<uint64_t> shape;  // outermost first
  TensorType type = TensorType::kF32;
  float fill = 0;  // of a kF32 tensor

  uint64_t values() const {
    uint64_t count = 1;
    for (uint64_t extent : shape) count *= extent;
    return count;
  }
  uint64_t bytes() const {
    const checkpoint::BlockShape block = checkpoint::TensorBlock(type);
    return values() / block.values * block.bytes;
  }
};

// Every tensor of a model, as its family names them.
std::vector<TensorPlan> PlanTensors(const ModelConfig& config, const TensorNames& names,
                                    TensorType type) {
  std::vector<TensorPlan> tensors;
  const uint64_t hidden = config.hidden, ffn = config.ffn;
  const uint64_t q = uint64_t{config.heads} * config.head_dim;
  const uint64_t kv = uint64_t{config.kv_heads} * config.head_dim;
  const auto norm = [&](const std::string& name) {
    tensors.push_back({name + ".weight", {hidden}, TensorType::kF32, 1});
  };
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    tensors.push_back({name + ".weight", {rows, columns}, type});
  };
  const auto qkv = [&](const std::string& name, uint64_t rows) {
    matrix(name, rows, hidden);
    if (config.qkv_bias) tensors.push_back({name + ".bias", {rows}});
  };
  matrix(std::string(names.embedding), config.vocabulary, hidden);
  if (!config.tied_head) matrix(std::string(names.head), config.vocabulary, hidden);
  norm(std::string(names.final_norm));
  for (uint32_t i = 0; i < config.layers; ++i) {
    const std::string prefix = absl::StrCat(std::string(names.layer_prefix), i, ".");
    const auto in_layer = [&](std::string_view name) { return prefix + std::string(name); };
    norm(in_layer(names.attention_norm));
    if (!names.qkv.empty()) {
      qkv(in_layer(names.qkv), q + 2 * kv);
    } else {
      qkv(in_layer(names.q), q);
      qkv(in_layer(names.k), kv);
      qkv(in_layer(names.v), kv);
    }
    matrix(in_layer(names.attention_out), hidden, q);
    norm(in_layer(names.ffn_norm));
    if (!names.gate_up.empty()) {
      matrix(in_layer(names.gate_up), 2 * ffn, hidden);
    } else {
      matrix(in_layer(names.gate), ffn, hidden);
      matrix(in_layer(names.up), ffn, hidden);
    }
    matrix(in_layer(names.down), hidden, ffn);
  }
  return tensors;
}

// Bytes of GGUF version 3 in front of the data.
class HeadBuilder final {
 public:
  void Text(std::string_view key, std::string_view value) {
    Key(key, 8);
    String(value, keys_);
  }
  void Uint(std::string_view key, uint32_t value) {
    Key(key, 4);
    Number(value, keys_);
  }
  void Float(std::string_view key, float value) {
    Key(key, 6);
    Number(value, keys_);
  }
  void Tensor(const TensorPlan& plan) {
    String(plan.name, tensors_);
    Number(static_cast<uint32_t>(plan.shape.size()), tensors_);
    for (auto extent = plan.shape.rbegin(); extent != plan.shape.rend(); ++extent) {
      Number(*extent, tensors_);
    }
    Number(TypeNumber(plan.type), tensors_);
    Number(offset_, tensors_);
    offset_ = Aligned(offset_ + plan.bytes());
    ++tensor_count_;
  }

  std::string Build() const {
    std::string head = "GGUF";
    Number(uint32_t{3}, head);
    Number(tensor_count_, head);
    Number(key_count_, head);
    head += keys_ + tensors_;
    head.resize(Aligned(head.size()));
    return head;
  }

  static uint64_t Aligned(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

 private:
  static uint32_t TypeNumber(TensorType type) {
    switch (type) {
      case TensorType::kF16:
        return 1;
      case TensorType::kQ4_0:
        return 2;
      case TensorType::kQ8_0:
        return 8;
      default:
        return 0;  // F32
    }
  }
  template <typename T>
  static void Number(T value, std::string& out) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void String(std::string_view text, std::string& out) {
    Number(uint64_t{text.size()}, out);
    out.append(text);
  }
  void Key(std::string_view key, uint32_t type) {
    String(key, keys_);
    Number(type, keys_);
    ++key_count_;
  }

  std::string keys_, tensors_;
  uint64_t key_count_ = 0, tensor_count_ = 0, offset_ = 0;
};

std::string MakeHead(const ModelConfig& config, const std::vector<TensorPlan>& tensors) {
  HeadBuilder head;
  const auto key = [&](const char* name) { return absl::StrCat(config.architecture, ".", name); };
  head.Text("general.architecture", config.architecture);
  head.Text("general.name", absl::StrCat("random ", config.name));
  head.Uint(key("context_length"), config.context);
  head.Uint(key("embedding_length"), config.hidden);
  head.Uint(key("feed_forward_length"), config.ffn);
  head.Uint(key("block_count"), config.layers);
  head.Uint(key("attention.head_count"), config.heads);
  head.Uint(key("attention.head_count_kv"), config.kv_heads);
  head.Float(key("attention.layer_norm_rms_epsilon"), config.norm_epsilon);
  head.Uint(key("rope.dimension_count"), config.rotary_dims);
  head.Float(key("rope.freq_base"), static_cast<float>(config.rope_base));
  head.Uint(key("vocab_size"), config.vocabulary);
  head.Text("tokenizer.ggml.model", "none");
  for (const TensorPlan& tensor : tensors) head.Tensor(tensor);
  return head.Build();
}

// A new file that is removed unless it is kept.
class NewFile final {
 public:
  static absl::StatusOr<NewFile> Create(const std::string& path) {
    UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (fd.valid()) return NewFile(path, std::move(fd));
    if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, ": exists already"));
    return Error(path);
  }
  NewFile(NewFile&&) = default;
  ~NewFile() {
    if (fd_.valid()) unlink(path_.c_str());
  }

  absl::Status Write(const void* bytes, size_t count) {
    const auto* from = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t done = write(fd_.get(), from, count);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return Error(path_);
      from += done;
      count -= static_cast<size_t>(done);
    }
    return absl::OkStatus();
  }
  absl::Status Keep() {
    if (close(fd_.Release()) == 0) return absl::OkStatus();
    absl::Status error = Error(path_);
    unlink(path_.c_str());
    return error;
  }

 private:
  NewFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  static absl::Status Error(const std::string& path) {
    return absl::UnknownError(absl::StrCat(path, ": ", std::generic_category().message(errno)));
  }

  std::string path_;
  UniqueFd fd_;
};

absl::Status WriteTensor(const TensorPlan& plan, Random random, NewFile& file) {
  if (plan.type == TensorType::kF32) {
    const std::vector<float> values(plan.values(), plan.fill);
    BATON_RETURN_IF_ERROR(file.Write(values.data(), values.size() * sizeof(float)));
  } else {
    const BlockMaker maker(plan.type, 1 / std::sqrt(static_cast<double>(plan.shape.back())));
    std::vector<std::byte> piece(kPieceBlocks * maker.bytes());
    for (uint64_t left = plan.values() / kBlockValues; left > 0;) {
      const size_t blocks = std::min<uint64_t>(left, kPieceBlocks);
      for (size_t i = 0; i < blocks; ++i) maker.Make(random, piece.data() + i * maker.bytes());
      BATON_RETURN_IF_ERROR(file.Write(piece.data(), blocks * maker.bytes()));
      left -= blocks;
    }
  }
  constexpr char kZeros[kAlignment] = {};
  return file.Write(kZeros, HeadBuilder::Aligned(plan.bytes()) - plan.bytes());
}

}  // namespace

absl::Status WriteRandomModel(const ModelConfig& config, TensorType weights, uint64_t seed,
                              const std::string& path) {
  if (weights != TensorType::kQ4_0 && weights != TensorType::kQ8_0 && weights != TensorType::kF16) {
    return absl::InvalidArgumentError("random weights are Q4_0, Q8_0 or F16");
  }
  BATON_ASSIGN_OR_RETURN(const checkpoint::Family* family,
                         checkpoint::FindFamilyByGgufArchitecture(config.architecture));
  const std::vector<TensorPlan> tensors = PlanTensors(config, family->gguf_names, weights);
  BATON_ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path));
  const std::string head = MakeHead(config, tensors);
  BATON_RETURN_IF_ERROR(file.Write(head.data(), head.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    BATON_RETURN_IF_ERROR(WriteTensor(tensors[i], Random(seed, i), file));
  }
  return file.Keep();
}

}  // namespace baton::cli
