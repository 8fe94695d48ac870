#include "caches/kv_cache.h"

#include "caches/check.h"

namespace lockstep {

std::string_view RowTypeName(RowType type) {
  switch (type) {
    case RowType::kF32: return "f32";
    case RowType::kF16: return "f16";
    case RowType::kQ8_0: return "q8_0";
    case RowType::kQ4_0: return "q4_0";
  }
  LS_CHECK(false, "row type {}", static_cast<int>(type));
  return {};
}

int64_t RowBytes(RowType type, int64_t elements) {
  switch (type) {
    case RowType::kF32: return elements * 4;
    case RowType::kF16: return elements * 2;
    case RowType::kQ8_0: return elements / 32 * 34;
    case RowType::kQ4_0: return elements / 32 * 18;
  }
  LS_CHECK(false, "row type {}", static_cast<int>(type));
  return 0;
}

void KvCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  View(layer, view);
  if (position < 0 || position >= view->length) {
    throw std::out_of_range("ViewForQuery: position outside the layer's length");
  }
}

}  // namespace lockstep
