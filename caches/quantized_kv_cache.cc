#include "caches/quantized_kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/codec.h"
#include "caches/kv_checks.h"
#include "caches/quantized/show_rows.h"

namespace lockstep {
namespace {

constexpr int32_t kDefaultStepRows = 512;

void CheckType(std::string_view cache, std::string_view what, RowType type) {
  switch (type) {
    case RowType::kF32:
    case RowType::kF16:
    case RowType::kBf16:
    case RowType::kQ8_0:
    case RowType::kQ4_0:
      return;
  }
  throw std::invalid_argument(
      fmt::format("{} cache: {} cannot be {}: give f32, f16, bf16, q8_0 or q4_0", cache, what,
                  static_cast<int>(type)));
}

bool IsBlockFormat(RowType type) { return type == RowType::kQ8_0 || type == RowType::kQ4_0; }

}  // namespace

QuantizedKvOptions CheckedOptions(std::string_view cache, QuantizedKvOptions options) {
  CheckGeometry(options.geometry);
  CheckType(cache, "key_type", options.key_type);
  CheckType(cache, "value_type", options.value_type);
  if (options.window_type != RowType::kF32 && options.window_type != RowType::kF16) {
    throw std::invalid_argument(fmt::format("{} cache: window_type {}: give f32 or f16", cache,
                                            static_cast<int>(options.window_type)));
  }
  const int32_t multiple = HeadDimMultiple(options.key_type, options.value_type);
  if (options.geometry.head_dim % multiple != 0) {
    throw std::invalid_argument(fmt::format("{} cache: head_dim {} is not a multiple of {}", cache,
                                            options.geometry.head_dim, multiple));
  }
  if (options.window < 0 || options.max_step_rows < 0) {
    throw std::invalid_argument(fmt::format("{} cache: window {} or max_step_rows {} < 0", cache,
                                            options.window, options.max_step_rows));
  }
  if (options.max_step_rows == 0) options.max_step_rows = kDefaultStepRows;
  options.max_step_rows = std::min(options.max_step_rows, options.geometry.max_length);
  if (options.window == 0) options.window_type = RowType::kF32;
  return options;
}

std::string RowsName(const QuantizedKvOptions& options) {
  return fmt::format("{}+{}/w{}{}", RowTypeName(options.key_type), RowTypeName(options.value_type),
                     options.window, options.window_type == RowType::kF16 ? "-f16" : "");
}

int32_t HeadDimMultiple(RowType key_type, RowType value_type) {
  const bool blocks = IsBlockFormat(key_type) || IsBlockFormat(value_type);
  return blocks ? static_cast<int32_t>(kBlockElements) : 1;
}

QuantizedKvCache::Codes::Codes(const KvGeometry& geometry, RowType row_type)
    : type(row_type),
      layout(MakeRowLayout(geometry.max_length, RowBytes(row_type, geometry.kv_stride()),
                           static_cast<int64_t>(kCacheAlignment))),
      memory(geometry.num_layers * layout.layer_stride),
      zero_row(static_cast<size_t>(layout.row_stride)) {
  EncodeRow(type, std::vector<float>(static_cast<size_t>(geometry.kv_stride())), zero_row);
}

std::span<std::byte> QuantizedKvCache::Codes::Rows(int32_t layer, int32_t first, int32_t count) {
  return memory.span().subspan(static_cast<size_t>(layout.Offset(layer, first)),
                               static_cast<size_t>(count * layout.row_stride));
}

std::span<const std::byte> QuantizedKvCache::Codes::Rows(int32_t layer, int32_t first,
                                                         int32_t count) const {
  return memory.span().subspan(static_cast<size_t>(layout.Offset(layer, first)),
                               static_cast<size_t>(count * layout.row_stride));
}

void QuantizedKvCache::Codes::Zero(int32_t layer, int32_t first, int32_t end) {
  for (int32_t row = first; row < end; ++row) {
    std::ranges::copy(zero_row, Rows(layer, row, 1).begin());
  }
}

QuantizedKvCache::QuantizedKvCache(const QuantizedKvOptions& options)
    : options_(CheckedOptions("quantized", options)),
      keys_(options_.geometry, options_.key_type),
      values_(options_.geometry, options_.value_type),
      lengths_(static_cast<size_t>(options_.geometry.num_layers)) {
  if (options_.window == 0) return;
  // A ring of max_length slots already holds every position.
  const int32_t slots = std::min(options_.window, options_.geometry.max_length);
  windows_.reserve(lengths_.size());
  for (size_t layer = 0; layer < lengths_.size(); ++layer) {
    windows_.emplace_back(WindowShape{.slots = slots,
                                      .max_step_rows = options_.max_step_rows,
                                      .kv_stride = options_.geometry.kv_stride(),
                                      .type = options_.window_type});
  }
}

std::string QuantizedKvCache::name() const { return "quantized/" + RowsName(options_); }

int32_t QuantizedKvCache::max_step_rows() const {
  return options_.window > 0 ? options_.max_step_rows : max_length();
}

int32_t QuantizedKvCache::length(int32_t layer) const {
  CheckLayer(options_.geometry, layer);
  return length_at(layer);
}

int32_t QuantizedKvCache::current_length() const { return std::ranges::max(lengths_); }

void QuantizedKvCache::View(int32_t layer, KvView* view) const {
  CheckLayer(options_.geometry, layer);
  const int32_t step_row = windows_.empty() ? 0 : window_at(layer).LastStepRow();
  ViewAt(layer, length_at(layer) - 1, step_row, view);
}

void QuantizedKvCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  CheckLayer(options_.geometry, layer);
  CheckQuery(position, length_at(layer));
  const int32_t step_row = windows_.empty() ? 0 : window_at(layer).StepRowOf(position);
  ViewAt(layer, position, step_row, view);
}

void QuantizedKvCache::ViewAt(int32_t layer, int32_t position, int32_t step_row,
                              KvView* view) const {
  ShownRows rows = {.length = length_at(layer),
                    .kv_stride = options_.geometry.kv_stride(),
                    .key_type = options_.key_type,
                    .value_type = options_.value_type,
                    .keys = keys_.Rows(layer, 0, 0).data(),
                    .values = values_.Rows(layer, 0, 0).data()};
  if (!windows_.empty()) {
    rows.window = options_.window;
    rows.index = &window_at(layer).index();
    rows.window_type = options_.window_type;
    rows.exact_keys = window_at(layer).Keys(0).data();
    rows.exact_values = window_at(layer).Values(0).data();
  }
  ShowRows(rows, position, step_row, view);
}

void QuantizedKvCache::Update(int32_t layer, std::span<const int32_t> positions,
                              std::span<const float> keys, std::span<const float> values) {
  const int32_t end = CheckUpdate(options_.geometry, layer, positions, keys, values);
  if (!windows_.empty()) CheckStepRows(positions, max_step_rows());
  if (positions.empty()) return;
  int32_t& length = length_at(layer);
  keys_.Zero(layer, length, end);
  values_.Zero(layer, length, end);
  const auto stride = static_cast<size_t>(options_.geometry.kv_stride());
  for (size_t i = 0; i < positions.size(); ++i) {
    EncodeRow(keys_.type, keys.subspan(i * stride, stride), keys_.Rows(layer, positions[i], 1));
    EncodeRow(values_.type, values.subspan(i * stride, stride),
              values_.Rows(layer, positions[i], 1));
  }
  if (!windows_.empty()) windows_[static_cast<size_t>(layer)].Stage(positions, keys, values);
  length = std::max(length, end);
}

std::optional<KvSlot> QuantizedKvCache::TryReserveSlot(int32_t layer,
                                                       std::span<const int32_t> /*positions*/) {
  CheckLayer(options_.geometry, layer);
  return std::nullopt;
}

void QuantizedKvCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  CheckLayer(options_.geometry, layer);
  DecideCommit(positions, std::nullopt, length_at(layer), max_length());
}

void QuantizedKvCache::Rollback(int32_t length) {
  CheckRollback(length, current_length());
  for (ExactWindow& window : windows_) window.DropFrom(length);
  for (int32_t layer = 0; layer < options_.geometry.num_layers; ++layer) {
    const int32_t gone = length_at(layer) - length;
    if (gone <= 0) continue;
    keys_.memory.Poison(keys_.Rows(layer, length, gone));
    values_.memory.Poison(values_.Rows(layer, length, gone));
    length_at(layer) = length;
  }
}

void QuantizedKvCache::Clear() { Rollback(0); }

std::unique_ptr<KvCache> QuantizedKvCache::Fork() {
  auto fork = std::make_unique<QuantizedKvCache>(options_);
  fork->lengths_ = lengths_;
  for (int32_t layer = 0; layer < options_.geometry.num_layers; ++layer) {
    const int32_t rows = length_at(layer);
    std::ranges::copy(keys_.Rows(layer, 0, rows), fork->keys_.Rows(layer, 0, rows).begin());
    std::ranges::copy(values_.Rows(layer, 0, rows), fork->values_.Rows(layer, 0, rows).begin());
  }
  for (size_t layer = 0; layer < windows_.size(); ++layer) {
    fork->windows_[layer].CopyFrom(windows_[layer]);
  }
  return fork;
}

}  // namespace lockstep
