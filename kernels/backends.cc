// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.h"
#include "kernels/cpu/avx2/avx2_backend.h"
#include "kernels/cpu/avx512/avx512_backend.h"
#include "kernels/cpu/generic/generic_backend.h"
#include "kernels/ref/ref_backend.h"

namespace baton::kernels {

const std::vector<const Backend*>& Backends() {
  static const std::vector<const Backend*> backends = [] {
    std::vector<const Backend*> list;
    if (const Backend* avx512 = Avx512Backend()) list.push_back(avx512);
    if (const Backend* vnni = Avx512VnniBackend()) list.push_back(vnni);
    if (const Backend* avx2 = Avx2Backend()) list.push_back(avx2);
    list.push_back(&GenericBackend());
    list.push_back(&RefBackend());
    return list;
  }();
  return backends;
}

const Backend* FindBackend(std::string_view isa) {
  for (const Backend* backend : Backends()) {
    if ((isa == "auto" || isa == backend->name()) && backend->available()) return backend;
  }
  return nullptr;
}

}  // namespace baton::kernels
