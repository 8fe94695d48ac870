#include "engine/model/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <string>
#include <tuple>

namespace lockstep {
namespace {

// Which sequence is checked, as an error names it. Text only then: a decode step allocates nothing.
struct Place {
  size_t index = 0;
  size_t sequences = 1;

  std::string Text() const {
    return sequences == 1 ? "forward" : fmt::format("forward: sequence {}", index);
  }
};

void CheckTokensAt(const ModelConfig& config, std::span<const int32_t> tokens, const Place& where) {
  if (tokens.empty()) throw std::invalid_argument(fmt::format("{}: no tokens", where.Text()));
  for (int32_t token : tokens) {
    if (token < 0 || token >= config.vocab_size) {
      throw std::out_of_range(
          fmt::format("{}: token {} is outside [0, {})", where.Text(), token, config.vocab_size));
    }
  }
}

void CheckCache(const ModelConfig& config, const KvCache& cache, const Place& where) {
  const KvGeometry& g = cache.geometry();
  const KvGeometry wanted = config.geometry(g.max_length);
  if (std::tie(g.num_layers, g.num_kv_heads, g.head_dim) !=
      std::tie(wanted.num_layers, wanted.num_kv_heads, wanted.head_dim)) {
    throw std::invalid_argument(
        fmt::format("{}: the cache has {} layers of {} heads of {}, the model has {} of {} of {}",
                    where.Text(), g.num_layers, g.num_kv_heads, g.head_dim, wanted.num_layers,
                    wanted.num_kv_heads, wanted.head_dim));
  }
  if (cache.max_step_rows() < 1) {
    throw std::invalid_argument(fmt::format("{}: the cache takes no rows", where.Text()));
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const int32_t kept = cache.attention_window(layer), seen = config.window_of(layer);
    if (kept == 0 || (seen > 0 && seen <= kept)) continue;
    throw std::invalid_argument(
        fmt::format("{}: the cache keeps {} rows for a query of layer {}, the model sees {} there",
                    where.Text(), kept, layer, seen == 0 ? "all" : std::to_string(seen)));
  }
}

void CheckPositions(const ModelConfig& config, const KvCache& cache,
                    std::span<const int32_t> positions, const Place& where) {
  for (size_t i = 1; i < positions.size(); ++i) {
    if (positions[i] <= positions[i - 1]) {
      throw std::invalid_argument(fmt::format("{}: positions {} and {} do not increase",
                                              where.Text(), positions[i - 1], positions[i]));
    }
  }
  const int32_t limit = std::min(config.context_length, cache.max_length());
  for (int32_t position : {positions.front(), positions.back()}) {
    if (position < 0 || position >= limit) {
      throw std::out_of_range(
          fmt::format("{}: position {} is outside [0, {}), the smaller of the model's context {} "
                      "and the cache's length {}",
                      where.Text(), position, limit, config.context_length, cache.max_length()));
    }
  }
}

int32_t UndoLength(const KvCache& cache, int32_t first_position) {
  return std::min(cache.current_length(), first_position);
}

// Whether rows are forgotten at some layer: what is undone then has a bound [W2].
bool Forgets(const KvCache& cache) {
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    if (cache.attention_window(layer) > 0) return true;
  }
  return false;
}

// A layer that is shorter than the length that undoes the step would be longer after the undo than
// it was, so such a step must not start; nor one whose first query, or what it would be undone to,
// needs rows that are forgotten.
void CheckUndo(const ModelConfig& config, const KvCache& cache, int32_t first_position,
               const Place& where) {
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (cache.length(layer) < UndoLength(cache, first_position)) {
      throw std::invalid_argument(fmt::format(
          "{}: layer {} holds {} rows where others hold {}: a step from position {} "
          "could not be undone; roll back first",
          where.Text(), layer, cache.length(layer), cache.current_length(), first_position));
    }
    const int32_t first = cache.first_position(layer);
    if (first > 0 && first_position - cache.attention_window(layer) < first) {
      throw std::invalid_argument(fmt::format(
          "{}: layer {} has forgotten rows before {} that a step from position {} needs",
          where.Text(), layer, first, first_position));
    }
  }
}

void CheckAdaptersAt(const ModelConfig& config, std::span<const AppliedAdapter> adapters,
                     const Place& where) {
  for (const AppliedAdapter& applied : adapters) {
    if (applied.adapter == nullptr) {
      throw std::invalid_argument(where.Text() + ": an adapter is null");
    }
    if (!applied.adapter->Fits(config)) {
      throw std::invalid_argument(fmt::format("{}: adapter '{}' is one of another model",
                                              where.Text(), applied.adapter->name()));
    }
    if (!std::isfinite(applied.scale)) {
      throw std::invalid_argument(fmt::format("{}: the scale {} of adapter '{}' is not finite",
                                              where.Text(), applied.scale,
                                              applied.adapter->name()));
    }
  }
}

}  // namespace

void CheckAdapters(const ModelConfig& config, std::span<const AppliedAdapter> adapters) {
  CheckAdaptersAt(config, adapters, {});
}

void CheckTokens(const ModelConfig& config, std::span<const int32_t> tokens) {
  CheckTokensAt(config, tokens, {});
}

void CheckBatch(const ModelConfig& config, std::span<const BatchSequence> batch) {
  if (batch.empty()) throw std::invalid_argument("forward: no sequences");
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchSequence& sequence = batch[i];
    const Place where = {i, batch.size()};
    if (sequence.cache == nullptr) throw std::invalid_argument(where.Text() + ": no cache");
    for (size_t other = 0; other < i; ++other) {
      if (batch[other].cache == sequence.cache) {
        throw std::invalid_argument(
            fmt::format("{}: it has the same cache as sequence {}", where.Text(), other));
      }
    }
    if (sequence.tokens.size() != sequence.positions.size()) {
      throw std::invalid_argument(fmt::format("{}: {} tokens at {} positions", where.Text(),
                                              sequence.tokens.size(), sequence.positions.size()));
    }
    CheckTokensAt(config, sequence.tokens, where);
    if (sequence.logits < 0 || static_cast<size_t>(sequence.logits) > sequence.tokens.size()) {
      throw std::invalid_argument(fmt::format("{}: logits of {} tokens of {}", where.Text(),
                                              sequence.logits, sequence.tokens.size()));
    }
    CheckCache(config, *sequence.cache, where);
    CheckPositions(config, *sequence.cache, sequence.positions, where);
    CheckUndo(config, *sequence.cache, sequence.positions.front(), where);
    CheckAdaptersAt(config, sequence.adapters, where);
  }
}

void BatchPlan::Start(std::span<const BatchSequence> batch, int32_t max_step_tokens) {
  batch_ = batch;
  max_step_tokens_ = max_step_tokens;
  last_position_ = 0;
  outputs_ = 0;
  progress_.clear();
  int64_t rows = 0;
  for (const BatchSequence& sequence : batch) {
    const bool forgets = Forgets(*sequence.cache);
    progress_.push_back({.done = 0,
                         .output = outputs_,
                         .undo = UndoLength(*sequence.cache, sequence.positions.front()),
                         .span = forgets ? sequence.cache->max_step_rows() : INT32_MAX});
    outputs_ += sequence.logits;
    rows += std::min(static_cast<int64_t>(sequence.tokens.size()),
                     int64_t{sequence.cache->max_step_rows()});
    last_position_ = std::max(last_position_, sequence.positions.back());
  }
  max_rows_ = static_cast<int32_t>(std::min(rows, int64_t{max_step_tokens}));
}

std::span<const StepPiece> BatchPlan::Next() {
  pieces_.clear();
  auto room = static_cast<size_t>(max_step_tokens_);
  for (size_t i = 0; i < batch_.size() && room > 0; ++i) {
    const BatchSequence& sequence = batch_[i];
    const size_t done = progress_[i].done;
    size_t count = std::min({room, sequence.tokens.size() - done,
                             static_cast<size_t>(sequence.cache->max_step_rows())});
    if (count == 0) continue;
    const auto reach = [&](size_t rows) {
      return int64_t{sequence.positions[done + rows - 1]} - sequence.positions[done];
    };
    while (reach(count) >= progress_[i].span) --count;  // over a gap, of one row at least
    room -= count;
    progress_[i].done += count;
    const size_t first_wanted = sequence.tokens.size() - static_cast<size_t>(sequence.logits);
    const size_t from = std::clamp(first_wanted, done, done + count);
    pieces_.push_back({.tokens = sequence.tokens.subspan(done, count),
                       .positions = sequence.positions.subspan(done, count),
                       .cache = sequence.cache,
                       .trace = sequence.trace,
                       .wanted = static_cast<int32_t>(done + count - from),
                       .output = progress_[i].output +
                                 static_cast<int32_t>(std::max(from, first_wanted) - first_wanted),
                       .adapters = sequence.adapters});
  }
  return pieces_;
}

void BatchPlan::RollBack() {
  std::exception_ptr broken;
  for (size_t i = 0; i < batch_.size(); ++i) {
    KvCache& cache = *batch_[i].cache;
    try {
      const int32_t length = std::min(progress_[i].undo, cache.current_length());
      if (CanRollback(cache, length)) {
        cache.Rollback(length);
      } else {
        cache.Clear();
      }
    } catch (...) {
      if (broken == nullptr) broken = std::current_exception();
    }
  }
  if (broken != nullptr) std::rethrow_exception(broken);
}

}  // namespace lockstep
