#include "oracle/script/cache_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <vector>

#include "caches/registry.h"
#include "oracle/decorators.h"
#include "oracle/script/choices.h"

namespace lockstep::oracle {
namespace {

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();

// One sequence on both sides, and what the contract leaves open about its rows.
struct Sequence {
  std::unique_ptr<RecordingCache> subject;
  std::unique_ptr<KvCache> model;  // a ModelCache
  // By layer: rows of reservations below the length. Their content is unspecified until they are
  // written again [R5].
  std::vector<std::set<int32_t>> unspecified;
  std::vector<std::vector<int32_t>> open;  // by layer: positions that are reserved, or empty
};

enum class Result { kDone, kGranted, kRefused, kOutOfRange, kInvalid, kLogic, kExhausted, kOther };

const char* ResultName(Result result) {
  constexpr std::array<const char*, 8> names = {"done",
                                                "granted",
                                                "refused",
                                                "std::out_of_range",
                                                "std::invalid_argument",
                                                "std::logic_error",
                                                "PoolExhausted",
                                                "some other exception"};
  return names[static_cast<size_t>(result)];
}

template <typename Call>
Result ResultOf(Call&& call) {
  try {
    return call();
  } catch (const PoolExhausted&) {
    return Result::kExhausted;
  } catch (const std::out_of_range&) {
    return Result::kOutOfRange;
  } catch (const std::invalid_argument&) {
    return Result::kInvalid;
  } catch (const std::logic_error&) {
    return Result::kLogic;
  } catch (const std::exception&) {
    return Result::kOther;
  }
}

class Script {
 public:
  Script(const ScriptSubject& subject, uint64_t seed, ScriptCounts* counts)
      : choose_(seed, subject.head_dim_multiple, subject.forks),
        geometry_(choose_.geometry()),
        counts_(counts) {
    auto cache = subject.make(geometry_);
    ModelCacheOptions options = subject.model;
    options.geometry = geometry_;
    if (cache->view_depends_on_query()) options.max_step_rows = cache->max_step_rows();
    Sequence sequence;
    sequence.subject = std::make_unique<RecordingCache>(std::move(cache));
    sequence.model = std::make_unique<ModelCache>(options);
    sequence.unspecified.resize(static_cast<size_t>(geometry_.num_layers));
    sequence.open.resize(static_cast<size_t>(geometry_.num_layers));
    sequences_.push_back(std::move(sequence));
  }

  std::optional<std::string> Run(int32_t operations) {
    for (int32_t i = 0; i < operations && !finding_; ++i) {
      current_ = choose_.Index(sequences_.size());
      Operate(sequences_[current_]);
      for (const Sequence& sequence : sequences_) Compare(sequence);
      ++counts_->operations;
    }
    if (!finding_) return std::nullopt;
    return *finding_ + "\n" + Log();
  }

 private:
  std::string Log() const {
    const KvGeometry& g = geometry_;
    std::string log = fmt::format("{} layers, {} KV heads, head_dim {}, max_length {}\n",
                                  g.num_layers, g.num_kv_heads, g.head_dim, g.max_length);
    for (const CacheRecord& record : sequences_[current_].subject->records()) {
      log += CacheRecordText(record) + "\n";
    }
    return log;
  }

  // The first one counts.
  template <typename... Args>
  void Find(fmt::format_string<Args...> format, Args&&... args) {
    if (!finding_) finding_ = fmt::format(format, std::forward<Args>(args)...);
  }

  void Operate(Sequence& s) {
    switch (choose_.PickKind()) {
      case Choices::kUpdate:
        return Update(s, choose_.PickLayer(), PickPositions(s), true);
      case Choices::kReserve:
        return Reserve(s, choose_.PickLayer(), PickPositions(s));
      case Choices::kCommit:
        return Commit(s);
      case Choices::kStep:
        return Step(s);
      case Choices::kRollback:
        return Rollback(s);
      case Choices::kClear:
        return Clear(s);
      case Choices::kFork:
        return Fork(s);
      default:
        return Query(s);
    }
  }

  std::vector<int32_t> PickPositions(const Sequence& s) {
    return choose_.PickPositions(s.model->current_length(), s.model->max_step_rows());
  }

  template <typename Call>
  Result Both(Sequence& s, Call&& call) {
    const Result subject = ResultOf([&] { return call(*s.subject); });
    const Result model = ResultOf([&] { return call(*s.model); });
    if (subject != model) Find("subject: {}, model: {}", ResultName(subject), ResultName(model));
    counts_->threw += model > Result::kRefused ? 1 : 0;
    counts_->exhausted += model == Result::kExhausted ? 1 : 0;
    return subject == model ? model : Result::kOther;
  }

  void Update(Sequence& s, int32_t layer, const std::vector<int32_t>& positions, bool spoil) {
    std::vector<float> keys = choose_.PickRows(positions.size());
    std::vector<float> values = choose_.PickRows(positions.size());
    if (spoil && choose_.OneIn(24)) (choose_.OneIn(2) ? keys : values).push_back(1.0f);
    if (spoil && choose_.OneIn(24) && !values.empty()) values.pop_back();
    const Result result = Both(s, [&](KvCache& cache) {
      cache.Update(layer, positions, keys, values);
      return Result::kDone;
    });
    if (result != Result::kDone || positions.empty()) return;
    ++counts_->updated;
    Written(s, layer, positions);
  }

  void Reserve(Sequence& s, int32_t layer, const std::vector<int32_t>& positions) {
    std::vector<KvSlot> slots;
    const Result result = Both(s, [&](KvCache& cache) {
      const std::optional<KvSlot> slot = cache.TryReserveSlot(layer, positions);
      if (slot) slots.push_back(*slot);
      return slot ? Result::kGranted : Result::kRefused;
    });
    if (result == Result::kRefused) ++counts_->refused;
    if (result != Result::kGranted) return;
    ++counts_->granted;
    const std::vector<float> keys = choose_.PickRows(positions.size());
    const std::vector<float> values = choose_.PickRows(positions.size());
    for (const KvSlot& slot : slots) {
      if (slot.keys.size() != keys.size() || slot.values.size() != values.size()) {
        return Find("[R4] a slot of {} and {} elements", slot.keys.size(), slot.values.size());
      }
      std::ranges::copy(keys, slot.keys.begin());
      std::ranges::copy(values, slot.values.begin());
    }
    const auto at = static_cast<size_t>(layer);
    s.open[at] = positions;
    for (int32_t p : positions) {
      if (p < s.model->length(layer)) s.unspecified[at].insert(p);
    }
  }

  // Mostly what is open somewhere, sometimes almost that, sometimes anything.
  void Commit(Sequence& s) {
    int32_t layer = choose_.PickLayer();
    std::vector<int32_t> positions = PickPositions(s);
    for (size_t l = 0; l < s.open.size() && !choose_.OneIn(4); ++l) {
      if (s.open[l].empty()) continue;
      layer = static_cast<int32_t>(l);
      positions = s.open[l];
      if (choose_.OneIn(8)) positions.pop_back();
      if (choose_.OneIn(8)) positions.push_back(positions.empty() ? 0 : positions.back());
    }
    CommitRun(s, layer, positions);
  }

  void CommitRun(Sequence& s, int32_t layer, const std::vector<int32_t>& positions) {
    const Result result = Both(s, [&](KvCache& cache) {
      cache.CommitSlot(layer, positions);
      return Result::kDone;
    });
    if (result != Result::kDone || positions.empty()) return;
    if (s.open[static_cast<size_t>(layer)] != positions) return;
    ++counts_->committed;
    Written(s, layer, positions);
  }

  // All layers in order, each by the direct path where it is granted: what an engine does.
  void Step(Sequence& s) {
    const std::vector<int32_t> positions = PickPositions(s);
    for (int32_t layer = 0; layer < geometry_.num_layers && !finding_; ++layer) {
      Reserve(s, layer, positions);
      if (!positions.empty() && s.open[static_cast<size_t>(layer)] == positions) {
        CommitRun(s, layer, positions);
      } else {
        Update(s, layer, positions, false);
      }
    }
  }

  void Rollback(Sequence& s) {
    const int32_t length = choose_.PickRollback(s.model->current_length());
    const Result result = Both(s, [&](KvCache& cache) {
      cache.Rollback(length);
      return Result::kDone;
    });
    if (result != Result::kDone) return;
    ++counts_->rolled_back;
    Shrunk(s, length);
  }

  void Clear(Sequence& s) {
    Both(s, [&](KvCache& cache) {
      cache.Clear();
      return Result::kDone;
    });
    Shrunk(s, 0);
  }

  void Fork(Sequence& s) {
    if (sequences_.size() >= 3) {  // end one instead, so that its blocks go back to the pool
      sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(current_));
      current_ = 0;
      return;
    }
    std::vector<std::unique_ptr<KvCache>> forks;
    Both(s, [&](KvCache& cache) {
      forks.push_back(cache.Fork());
      return Result::kDone;
    });
    if (finding_ || forks.size() != 2) return;
    ++counts_->forked;
    for (auto& open : s.open) open.clear();
    Sequence fork;
    fork.subject.reset(static_cast<RecordingCache*>(forks[0].release()));
    fork.model = std::move(forks[1]);
    fork.unspecified = s.unspecified;
    fork.open.resize(s.open.size());
    sequences_.push_back(std::move(fork));
  }

  // Reads, among them such as must throw.
  void Query(Sequence& s) {
    const int32_t layer = choose_.PickLayer();
    const int32_t length = s.model->current_length();
    const std::array<int32_t, 5> positions = {0, -1, kMax, length, length - 1};
    const int32_t position = positions[choose_.Index(positions.size())];
    KvView view;
    Both(s, [&](KvCache& cache) { return cache.View(layer, &view), Result::kDone; });
    Both(s, [&](KvCache& cache) { return cache.length(layer), Result::kDone; });
    Both(s,
         [&](KvCache& cache) { return cache.ViewForQuery(layer, position, &view), Result::kDone; });
  }

  static void Written(Sequence& s, int32_t layer, const std::vector<int32_t>& positions) {
    const auto at = static_cast<size_t>(layer);
    for (int32_t p : positions) s.unspecified[at].erase(p);
    s.open[at].clear();
  }

  static void Shrunk(Sequence& s, int32_t length) {
    for (auto& rows : s.unspecified) rows.erase(rows.lower_bound(length), rows.end());
    for (auto& open : s.open) open.clear();
  }

  void Compare(const Sequence& s) {
    if (finding_) return;
    bool specified = true;
    KvView subject, model;
    for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
      const int32_t length = s.model->length(layer);
      if (s.subject->length(layer) != length) {
        return Find("length of layer {}: subject {}, model {}", layer, s.subject->length(layer),
                    length);
      }
      s.subject->View(layer, &subject);
      s.model->View(layer, &model);
      CompareRows(s, layer, subject, model, length, -1);
      for (int32_t i = 0; i < length && s.model->view_depends_on_query(); ++i) {
        s.subject->ViewForQuery(layer, i, &subject);
        s.model->ViewForQuery(layer, i, &model);
        CompareRows(s, layer, subject, model, i + 1, i);
      }
      specified = specified && s.unspecified[static_cast<size_t>(layer)].empty();
    }
    if (s.subject->current_length() != s.model->current_length())
      Find("the current lengths differ");
    CompareBlocks(s);
    if (!specified || finding_) return;
    if (DigestOfCache(*s.subject) != DigestOfCache(*s.model)) Find("[X1] the hashes differ");
    if (s.subject->StorageDigest() != s.model->StorageDigest()) Find("[X2] stored bytes differ");
  }

  // Of one sequence alone, which no block is shared with [B3].
  void CompareBlocks(const Sequence& s) {
    const auto blocks = BlockCountsOf(s.subject->inner());
    const auto open = [](const std::vector<int32_t>& positions) { return !positions.empty(); };
    if (!blocks || sequences_.size() > 1 || std::ranges::any_of(s.open, open)) return;
    const auto& model = static_cast<const ModelCache&>(*s.model);
    if (blocks->used_blocks == model.blocks_used()) return;
    Find("[B3] {} blocks in use, rows need {}", blocks->used_blocks, model.blocks_used());
  }

  // Rows [0, visible) of two views of one layer; `query` is -1 for View.
  void CompareRows(const Sequence& s, int32_t layer, const KvView& subject, const KvView& model,
                   int32_t visible, int32_t query) {
    if (finding_) return;
    if (subject.length != model.length) return Find("views of layer {} differ in length", layer);
    const KvRows a = DecodeRows(subject, geometry_.kv_stride());
    const KvRows b = DecodeRows(model, geometry_.kv_stride());
    const auto stride = static_cast<size_t>(geometry_.kv_stride());
    const std::set<int32_t>& skipped = s.unspecified[static_cast<size_t>(layer)];
    for (int32_t p = 0; p < visible; ++p) {
      if (skipped.count(p) != 0) continue;
      ++counts_->rows_compared;
      for (size_t i = 0; i < stride; ++i) {
        const size_t at = static_cast<size_t>(p) * stride + i;
        for (const bool key : {true, false}) {
          const float x = key ? a.keys[at] : a.values[at];
          const float y = key ? b.keys[at] : b.values[at];
          if (CanonicalBits(x) == CanonicalBits(y)) continue;
          return Find("layer {}, {} row {}, element {}, query {}: subject {:#010x}, model {:#010x}",
                      layer, key ? 'K' : 'V', p, i, query, CanonicalBits(x), CanonicalBits(y));
        }
      }
    }
  }

  Choices choose_;
  KvGeometry geometry_;
  ScriptCounts* counts_;
  std::vector<Sequence> sequences_;
  size_t current_ = 0;  // the sequence that the operation goes to
  std::optional<std::string> finding_;
};

}  // namespace

ScriptCounts& ScriptCounts::operator+=(const ScriptCounts& other) {
  operations += other.operations;
  granted += other.granted;
  refused += other.refused;
  committed += other.committed;
  updated += other.updated;
  threw += other.threw;
  exhausted += other.exhausted;
  rolled_back += other.rolled_back;
  forked += other.forked;
  rows_compared += other.rows_compared;
  return *this;
}

std::optional<std::string> RunScript(const ScriptSubject& subject, uint64_t seed,
                                     int32_t operations, ScriptCounts* counts) {
  Script script(subject, seed, counts);
  return script.Run(operations);
}

}  // namespace lockstep::oracle
