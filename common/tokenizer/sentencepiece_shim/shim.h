// SPDX-License-Identifier: Apache-2.0
// C interface of libbaton_sentencepiece.so, the only object that links
// libsentencepiece. That library carries a protobuf of its own, which cannot
// share a process's symbols with libprotobuf, so the shim is opened with
// dlmopen into a namespace of its own. It has its own C library there: memory
// is freed on the side that allocated it, and nothing but plain bytes crosses.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum BatonSpKind {
  kBatonSpNormal = 0,
  kBatonSpUnknown = 1,
  kBatonSpControl = 2,
  kBatonSpUnused = 3,
  kBatonSpByte = 4,
};

typedef void BatonSpBytesSink(void* context, const char* bytes, size_t count);
typedef void BatonSpIdsSink(void* context, const int* ids, size_t count);

// One table, so that the caller looks up a single symbol.
typedef struct BatonSpApi {
  // Null on failure, after `error` was told why.
  void* (*open)(const char* model, size_t bytes, BatonSpBytesSink* error, void* context);
  void (*close)(void* processor);
  // The rest is thread-safe on one processor.
  uint32_t (*size)(const void* processor);
  int (*kind)(const void* processor, uint32_t id);  // BatonSpKind
  void (*piece)(const void* processor, uint32_t id, BatonSpBytesSink* sink, void* context);
  // 1 when decoding drops the first piece's space.
  int (*drops_leading_space)(const void* processor);
  // 0 on failure; otherwise the sink is called once.
  int (*encode)(const void* processor, const char* text, size_t bytes, BatonSpIdsSink* sink,
                void* context);
} BatonSpApi;

#define BATON_SP_API_SYMBOL "baton_sentencepiece_api_1"

#ifdef __cplusplus
}
#endif
