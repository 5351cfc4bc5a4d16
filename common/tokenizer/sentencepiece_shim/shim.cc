// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/sentencepiece_shim/shim.h"

#include <sentencepiece_processor.h>

#include <memory>
#include <string>
#include <vector>

namespace {

using sentencepiece::SentencePieceProcessor;

const SentencePieceProcessor& Processor(const void* handle) {
  return *static_cast<const SentencePieceProcessor*>(handle);
}

void* Open(const char* model, size_t bytes, BatonSpBytesSink* error, void* context) {
  try {
    auto processor = std::make_unique<SentencePieceProcessor>();
    const auto status = processor->LoadFromSerializedProto({model, bytes});
    if (status.ok()) return processor.release();
    const std::string message = status.ToString();
    error(context, message.data(), message.size());
  } catch (...) {
    constexpr char kMessage[] = "the library threw an exception";
    error(context, kMessage, sizeof(kMessage) - 1);
  }
  return nullptr;
}

void Close(void* processor) { delete static_cast<SentencePieceProcessor*>(processor); }

uint32_t Size(const void* processor) {
  return static_cast<uint32_t>(Processor(processor).GetPieceSize());
}

int Kind(const void* processor, uint32_t piece) {
  const int id = static_cast<int>(piece);
  if (Processor(processor).IsUnknown(id)) return kBatonSpUnknown;
  if (Processor(processor).IsControl(id)) return kBatonSpControl;
  if (Processor(processor).IsUnused(id)) return kBatonSpUnused;
  return Processor(processor).IsByte(id) ? kBatonSpByte : kBatonSpNormal;
}

void Piece(const void* processor, uint32_t id, BatonSpBytesSink* sink, void* context) {
  const std::string& piece = Processor(processor).IdToPiece(static_cast<int>(id));
  sink(context, piece.data(), piece.size());
}

// The library does not say so itself; a piece that begins with one space mark
// (U+2581) shows it.
int DropsLeadingSpace(const void* processor) {
  constexpr char kOne[] = "\xE2\x96\x81", kTwo[] = "\xE2\x96\x81\xE2\x96\x81";
  const SentencePieceProcessor& sp = Processor(processor);
  for (int id = 0; id < sp.GetPieceSize(); ++id) {
    const std::string& piece = sp.IdToPiece(id);
    const bool normal = !sp.IsUnknown(id) && !sp.IsControl(id) && !sp.IsUnused(id);
    if (!normal || piece.rfind(kOne, 0) != 0 || piece.rfind(kTwo, 0) == 0) continue;
    std::string text;
    const bool decoded = sp.Decode(std::vector<int>{id}, &text).ok();
    return decoded && (text.empty() || text[0] != ' ') ? 1 : 0;
  }
  return 0;
}

int Encode(const void* processor, const char* text, size_t bytes, BatonSpIdsSink* sink,
           void* context) {
  try {
    std::vector<int> ids;
    if (!Processor(processor).Encode({text, bytes}, &ids).ok()) return 0;
    sink(context, ids.data(), ids.size());
    return 1;
  } catch (...) {
    return 0;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const BatonSpApi baton_sentencepiece_api_1;
const BatonSpApi baton_sentencepiece_api_1 = {Open,  Close, Size, Kind, Piece, DropsLeadingSpace,
                                              Encode};
