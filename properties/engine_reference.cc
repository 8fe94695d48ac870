#include "properties/engine_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "caches/check.h"
#include "caches/digest.h"
#include "oracle/decorators.h"
#include "oracle/difference.h"
#include "oracle/plain_shift.h"

namespace lockstep {

// A ModelCache, and every row as it was given to it.
class EngineReference::LoggedCache final : public ForwardingCache {
 public:
  explicit LoggedCache(const ModelCacheOptions& options)
      : LoggedCache(std::make_unique<ModelCache>(options)) {}

  const ModelCacheOptions& options() const {
    return static_cast<const ModelCache&>(inner()).options();
  }

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override {
    inner().Update(layer, positions, keys, values);
    KvRows& rows = rows_[static_cast<size_t>(layer)];
    rows.keys.insert(rows.keys.end(), keys.begin(), keys.end());
    rows.values.insert(rows.values.end(), values.begin(), values.end());
  }

  void Rollback(int32_t length) override {
    inner().Rollback(length);
    const auto elements = static_cast<size_t>(length * geometry().kv_stride());
    for (KvRows& rows : rows_) {
      rows.keys.resize(elements);
      rows.values.resize(elements);
    }
  }

  std::unique_ptr<KvCache> Fork() override { return Copy(); }

  std::unique_ptr<LoggedCache> Copy() {
    std::unique_ptr<LoggedCache> copy(new LoggedCache(inner().Fork()));
    copy->rows_ = rows_;
    return copy;
  }

  // Rows from `first` on are these now; the cache below is not told.
  void Replace(int32_t layer, int32_t first, const KvRows& moved) {
    KvRows& rows = rows_[static_cast<size_t>(layer)];
    const auto elements = static_cast<size_t>(first * geometry().kv_stride());
    rows.keys.resize(elements);
    rows.values.resize(elements);
    rows.keys.insert(rows.keys.end(), moved.keys.begin(), moved.keys.end());
    rows.values.insert(rows.values.end(), moved.values.begin(), moved.values.end());
  }

  // A new cache of the first `length` rows.
  std::unique_ptr<LoggedCache> Rebuilt(int32_t length) const {
    auto rebuilt = std::make_unique<LoggedCache>(options());
    std::vector<int32_t> positions(static_cast<size_t>(length));
    std::iota(positions.begin(), positions.end(), 0);
    const auto elements = static_cast<size_t>(length * geometry().kv_stride());
    for (int32_t layer = 0; layer < geometry().num_layers; ++layer) {
      const KvRows& rows = rows_[static_cast<size_t>(layer)];
      rebuilt->Update(layer, positions, std::span(rows.keys).first(elements),
                      std::span(rows.values).first(elements));
    }
    return rebuilt;
  }

 private:
  explicit LoggedCache(std::unique_ptr<KvCache> model)
      : ForwardingCache(std::move(model)), rows_(static_cast<size_t>(geometry().num_layers)) {}

  std::vector<KvRows> rows_;  // by layer, in order of position
};

EngineReference::EngineReference(Transformer& plain, const ModelCacheOptions& options)
    : plain_(plain), cache_(std::make_unique<LoggedCache>(options)) {
  LS_CHECK(plain.kernels().name == "scalar" && plain.threads() == 1, "{} kernels on {} threads",
           plain.kernels().name, plain.threads());
  LS_CHECK(options.refuses_host_slots, "the reference writes by Update alone");
}

EngineReference::EngineReference(const EngineReference& other)
    : plain_(other.plain_),
      cache_(other.cache_->Copy()),
      tokens_(other.tokens_),
      adapters_(other.adapters_),
      logits_(other.logits_),
      pushed_out_(other.pushed_out_),
      unmoved_(other.unmoved_),
      rows_(other.rows_),
      storage_(other.storage_) {}

EngineReference::~EngineReference() = default;

void EngineReference::Append(std::span<const int32_t> tokens,
                             std::span<const AppliedAdapter> adapters) {
  for (const int32_t token : tokens) {
    const int32_t position = length();
    const BatchSequence step = {{&token, 1}, {&position, 1}, cache_.get(), nullptr, adapters};
    const std::span<const float> logits = plain_.ForwardBatch({&step, 1});
    logits_.assign(logits.begin(), logits.end());
    tokens_.push_back(token);
    adapters_.push_back(adapters);
  }
  Changed();
}

void EngineReference::Rollback(int32_t length) {
  LS_CHECK(length >= 0 && length <= this->length(), "{} of {} rows", length, this->length());
  if (length == this->length()) return;
  if (has_window() || forgets()) {
    cache_->Rollback(length);
    pushed_out_ = pushed_out_ || (has_window() && length > 0);
  } else {
    cache_ = cache_->Rebuilt(length);
  }
  tokens_.resize(static_cast<size_t>(length));
  adapters_.resize(static_cast<size_t>(length));
  logits_.clear();
  if (length <= unmoved_) unmoved_ = INT32_MAX;
  Changed();
}

void EngineReference::Shift(const DeletedSpan& deleted) {
  if (deleted.end == length()) return Rollback(deleted.first);
  const int32_t left = length() - deleted.count();
  const auto stride = static_cast<size_t>(cache_->geometry().kv_stride());
  const auto gone = static_cast<std::ptrdiff_t>(deleted.end * cache_->geometry().kv_stride());
  std::vector<int32_t> positions(static_cast<size_t>(left - deleted.first));
  std::iota(positions.begin(), positions.end(), deleted.first);
  for (int32_t layer = 0; layer < cache_->geometry().num_layers; ++layer) {
    KvView view;
    cache_->View(layer, &view);
    KvRows rows = DecodeRows(view, cache_->geometry().kv_stride());
    rows.keys.erase(rows.keys.begin(), rows.keys.begin() + gone);
    rows.values.erase(rows.values.begin(), rows.values.begin() + gone);
    for (size_t at = 0; at < rows.keys.size(); at += stride) {
      PlainTurnBack(plain_.model().config(), layer, deleted.count(),
                    std::span(rows.keys).subspan(at, stride));
    }
    if (has_window()) cache_->inner().Update(layer, positions, rows.keys, rows.values);
    cache_->Replace(layer, deleted.first, rows);
  }
  if (has_window()) {
    cache_->inner().Rollback(left);
    pushed_out_ = true;
  } else {
    cache_ = cache_->Rebuilt(left);
  }
  tokens_.erase(tokens_.begin() + deleted.first, tokens_.begin() + deleted.end);
  adapters_.erase(adapters_.begin() + deleted.first, adapters_.begin() + deleted.end);
  logits_.clear();
  unmoved_ = std::min(unmoved_, deleted.first);
  Changed();
}

void EngineReference::Lose(std::span<const LostRows> writes) {
  if ((!has_window() && !forgets()) || writes.empty()) return;
  for (const LostRows& write : writes) {
    const std::vector<float> rows(write.positions.size() *
                                  static_cast<size_t>(cache_->geometry().kv_stride()));
    cache_->inner().Update(write.layer, write.positions, rows, rows);
  }
  Changed();
  if (!CanRollback(*cache_, length())) {
    cache_->Rollback(0);
    tokens_.clear();
    adapters_.clear();
    logits_.clear();
    return;
  }
  cache_->Rollback(length());
  pushed_out_ = pushed_out_ || has_window();
}

const KvCache& EngineReference::cache() const { return *cache_; }

bool EngineReference::has_window() const { return cache_->options().window > 0; }

bool EngineReference::forgets() const { return !cache_->options().windows.empty(); }

const Digest& EngineReference::rows() const {
  if (!rows_) rows_ = DigestOfCache(*cache_);
  return *rows_;
}

const Digest& EngineReference::storage() const {
  if (!storage_) storage_ = cache_->StorageDigest();
  return *storage_;
}

std::optional<std::string> EngineReference::CompareWhole() const {
  if (tokens_.empty() || pushed_out_ || unmoved_ < length()) return std::nullopt;
  ModelCache whole(cache_->options());
  std::vector<int32_t> positions(tokens_.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::span<const float> logits;
  for (size_t begin = 0, end = 0; begin < tokens_.size(); begin = end) {
    while (end < tokens_.size() && adapters_[end].data() == adapters_[begin].data()) ++end;
    const BatchSequence step = {std::span(tokens_).subspan(begin, end - begin),
                                std::span(positions).subspan(begin, end - begin), &whole, nullptr,
                                adapters_[begin]};
    logits = plain_.ForwardBatch({&step, 1});
  }
  if (!logits_.empty() && FirstFloatDifference(logits, logits_) >= 0) return "logits";
  for (int32_t layer = 0; layer < whole.geometry().num_layers; ++layer) {
    const auto difference = FirstRowDifference(whole, *cache_, layer);
    if (difference) return difference->Sentence();
  }
  return std::nullopt;
}

}  // namespace lockstep
