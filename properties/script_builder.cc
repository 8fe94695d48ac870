#include "properties/script_builder.h"

#include <algorithm>
#include <array>
#include <limits>

#include "caches/kv_checks.h"
#include "caches/registry.h"

namespace lockstep {
namespace {

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

// What the builder believes of one sequence: enough to aim at the interesting places. That a
// reservation was refused is not known here, and need not be.
struct Belief {
  int32_t length = 0;
  std::vector<std::vector<int32_t>> open;       // [num_layers], positions asked for, not committed
  std::vector<std::vector<int32_t>> committed;  // [num_layers], committed last
};

class Builder {
 public:
  Builder(const ScriptTarget& target, Chooser& choose) : choose_(choose), target_(target) {
    script_.cache = target.name;
    PickGeometry();
    for (uint32_t& weight : weights_) weight = choose_.OneIn(4) ? 0 : 1 + choose_.Below(6);
    sequences_.push_back(NewBelief());
  }

  CacheScript Build() {
    while (!choose_.Exhausted()) Operate();
    return std::move(script_);
  }

 private:
  // Never degenerate: several layers and heads, and a max_length that no block size divides more
  // often than not.
  void PickGeometry() {
    KvGeometry& g = script_.geometry;
    g.num_layers = choose_.Between(1, 3);
    g.num_kv_heads = choose_.Between(1, 3);
    g.head_dim = target_.head_dim_multiple * choose_.Between(1, 2);
    g.max_length = choose_.Between(1, 21);
    if (target_.limits_pool && target_.block_size > 0 && choose_.OneIn(3)) {
      const int32_t needed = (g.max_length + target_.block_size - 1) / target_.block_size;
      script_.blocks = choose_.Between(1, std::max(1, needed));
    }
    if (target_.takes_windows) PickWindows();
  }

  // By what was chosen already, so that bytes stand for the same operations with windows and
  // without: none, up to 6 rows, and every second layer without.
  void PickWindows() {
    KvGeometry& g = script_.geometry;
    g.window = (g.max_length + 2 * g.num_kv_heads) % 7;
    g.full_interval = g.window > 0 && g.max_length % 3 == 0 ? 2 : 0;
  }

  Belief NewBelief() const {
    Belief belief;
    belief.open.resize(static_cast<size_t>(script_.geometry.num_layers));
    belief.committed.resize(belief.open.size());
    return belief;
  }

  Belief& current() { return sequences_[current_]; }

  ScriptOpKind PickKind() {
    uint32_t sum = 0;
    for (uint32_t weight : weights_) sum += weight;
    if (sum == 0) return ScriptOpKind::kUpdate;
    uint32_t at = choose_.Below(sum);
    size_t kind = 0;
    while (at >= weights_[kind]) at -= weights_[kind++];
    // The last place stands for a whole forward step.
    if (kind == kScriptOpKinds) return Step();
    return static_cast<ScriptOpKind>(kind);
  }

  // All layers in order, reserved, written and committed: what an engine does. Its last operation
  // is returned like any other.
  ScriptOpKind Step() {
    const std::vector<int32_t> positions = PickPositions();
    for (int32_t layer = 0; layer < script_.geometry.num_layers; ++layer) {
      Add({.kind = ScriptOpKind::kReserve, .layer = layer, .positions = positions});
      Add({.kind = ScriptOpKind::kWrite, .layer = layer, .rows = PickRows()});
      Add({.kind = ScriptOpKind::kCommit, .layer = layer, .positions = positions});
    }
    return ScriptOpKind::kRead;
  }

  // Two sequences write by turns.
  void Interleave() {
    for (int32_t turn = 0; turn < 3; ++turn) {
      Add({.kind = ScriptOpKind::kSwitch, .target = turn % 2});
      Add({ScriptOpKind::kUpdate, PickLayer(), PickPositions(), PickRows()});
    }
  }

  void Operate() {
    ScriptOp op;
    op.kind = PickKind();
    switch (op.kind) {
      case ScriptOpKind::kUpdate:
        op = {op.kind, PickLayer(), PickPositions(), PickRows()};
        if (choose_.OneIn(24)) op.extra_keys = choose_.OneIn(2) ? 1 : -1;
        if (choose_.OneIn(24)) op.extra_values = choose_.OneIn(2) ? 1 : -1;
        break;
      case ScriptOpKind::kReserve:
        op = {op.kind, PickLayer(), PickPositions()};
        break;
      case ScriptOpKind::kWrite:
        op = {op.kind, OpenLayer(), {}, PickRows()};
        break;
      case ScriptOpKind::kCommit:
        op = PickCommit();
        break;
      case ScriptOpKind::kAbandon:
        op.layer = OpenLayer();
        break;
      case ScriptOpKind::kRollback:
        op.target = PickRollback();
        break;
      case ScriptOpKind::kSwitch:
        op.target = choose_.Between(0, kMaxSequences - 1);
        if (sequences_.size() > 1 && choose_.OneIn(3)) Interleave();
        break;
      case ScriptOpKind::kRead:
        op.layer = PickLayer();
        op.target = PickQuery();
        break;
      default:
        break;
    }
    Add(std::move(op));
  }

  void Add(ScriptOp op) {
    Believe(op);
    script_.ops.push_back(std::move(op));
  }

  // A refused reservation leaves the earlier one open, which a later commit has to find [R2].
  bool LooksGrantable(const std::vector<int32_t>& positions) const {
    const auto run = AsRun(positions, script_.geometry.max_length);
    const int32_t block = target_.block_size;
    return run && (block == 0 || run->first / block == (run->end() - 1) / block);
  }

  void Believe(const ScriptOp& op) {
    Belief& belief = current();
    const bool in_range = op.layer >= 0 && op.layer < script_.geometry.num_layers;
    const auto layer = static_cast<size_t>(in_range ? op.layer : 0);
    switch (op.kind) {
      case ScriptOpKind::kReserve:
        if (in_range && LooksGrantable(op.positions)) belief.open[layer] = op.positions;
        break;
      case ScriptOpKind::kUpdate:
      case ScriptOpKind::kCommit:
        for (int32_t p : op.positions) {
          if (p >= 0 && p < script_.geometry.max_length) {
            belief.length = std::max(belief.length, p + 1);
          }
        }
        if (op.kind == ScriptOpKind::kCommit) belief.committed[layer] = op.positions;
        belief.open[layer].clear();
        break;
      case ScriptOpKind::kAbandon:
        belief.open[layer].clear();
        break;
      case ScriptOpKind::kRollback:
        if (op.target >= 0 && op.target < belief.length) belief.length = op.target;
        for (auto& open : belief.open) open.clear();
        break;
      case ScriptOpKind::kClear:
        belief = NewBelief();
        break;
      case ScriptOpKind::kFork:
        if (sequences_.size() < kMaxSequences) sequences_.push_back(belief);
        break;
      case ScriptOpKind::kEnd:
        if (sequences_.size() > 1) {
          sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(current_));
          current_ = 0;
        }
        break;
      case ScriptOpKind::kSwitch:
        current_ = static_cast<size_t>(op.target) % sequences_.size();
        break;
      default:
        break;
    }
  }

  uint32_t PickRows() { return 1 + choose_.Below(255); }

  int32_t PickLayer() {
    if (!choose_.OneIn(24)) return choose_.Between(0, script_.geometry.num_layers - 1);
    const std::array<int32_t, 4> bad = {-1, script_.geometry.num_layers, kMax, kMin};
    return bad[choose_.Below(4)];
  }

  int32_t OpenLayer() {
    for (size_t layer = 0; layer < current().open.size(); ++layer) {
      if (!current().open[layer].empty() && !choose_.OneIn(6)) return static_cast<int32_t>(layer);
    }
    return choose_.Between(0, script_.geometry.num_layers - 1);
  }

  // Mostly what is open, sometimes almost that, sometimes anything.
  ScriptOp PickCommit() {
    const int32_t layer = OpenLayer();
    std::vector<int32_t> positions = current().open[static_cast<size_t>(layer)];
    if (choose_.OneIn(10)) {  // once more
      return {ScriptOpKind::kCommit, layer, current().committed[static_cast<size_t>(layer)]};
    }
    if (positions.empty() || choose_.OneIn(8))
      return {ScriptOpKind::kCommit, PickLayer(), PickPositions()};
    if (choose_.OneIn(8)) positions.pop_back();
    if (choose_.OneIn(12) && !positions.empty()) positions.push_back(positions.back());
    return {ScriptOpKind::kCommit, layer, std::move(positions)};
  }

  int32_t PickRollback() {
    const int32_t length = current().length;
    switch (choose_.Below(12)) {
      case 0:
        return length + 1;
      case 1:
        return choose_.OneIn(2) ? -1 : kMax;
      case 2:
        return 0;
      case 3:
      case 4:
        return choose_.Between(0, length);
      default:
        return std::max(0, length - choose_.Between(0, 3));
    }
  }

  int32_t PickQuery() {
    const std::array<int32_t, 6> queries = {0,
                                            -1,
                                            kMax,
                                            current().length,
                                            current().length - 1,
                                            choose_.Between(0, script_.geometry.max_length)};
    return queries[choose_.Below(queries.size())];
  }

  int32_t AnyPosition() { return choose_.Between(0, script_.geometry.max_length - 1); }

  static std::vector<int32_t> Strided(int64_t first, int32_t count, int32_t stride) {
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < count; ++i) {
      const int64_t p = first + int64_t{i} * stride;
      if (p >= kMin && p <= kMax) positions.push_back(static_cast<int32_t>(p));
    }
    return positions;
  }

  // A block boundary, or its neighbour.
  int32_t NearBoundary() {
    const int32_t block = std::max(target_.block_size, 1);
    const int32_t blocks = script_.geometry.max_length / block;
    return block * choose_.Between(0, blocks) + choose_.Between(-1, 1);
  }

  std::vector<int32_t> PickPositions() {
    const int32_t max_length = script_.geometry.max_length;
    const int32_t length = current().length;
    const int32_t count =
        choose_.Between(1, std::max(1, choose_.OneIn(3) ? max_length : max_length / 4));
    switch (choose_.Below(20)) {
      case 0:
        return {};
      case 1:  // ends at max_length, one before it, one past it
        return Strided(int64_t{max_length} - count + choose_.Between(-1, 1), count, 1);
      case 2:
        return {choose_.OneIn(2) ? kMax : kMin};
      case 3:  // runs over the ends of int32
        return choose_.OneIn(2) ? Strided(-1, 2, 1) : std::vector<int32_t>{kMax, kMin};
      case 4:
        if (choose_.OneIn(2)) return {kMax - 1, kMax, kMin};
        return Strided(kMax - 1, 2, 1);
      case 5:
        return Strided(AnyPosition(), count, -1);
      case 6:
        return Strided(AnyPosition(), count, choose_.Between(2, 5));
      case 7: {
        std::vector<int32_t> any;
        for (int32_t i = 0; i < count; ++i) any.push_back(AnyPosition());
        return any;
      }
      case 8: {
        const int32_t p = AnyPosition();
        return {p, p};
      }
      case 9:  // longer than max_length
        return Strided(0, max_length + choose_.Between(0, 1), 1);
      case 10:  // begins, or ends, near a block boundary
        return Strided(NearBoundary(), count, 1);
      case 11:
        return Strided(int64_t{NearBoundary()} - count, count, 1);
      case 12:
        return {AnyPosition()};
      case 13:
      case 14:
        return Strided(std::max(0, length - choose_.Between(0, 3)), count, 1);
      case 15:  // a gap
        return Strided(int64_t{length} + choose_.Between(1, 3), count, 1);
      default:  // append
        return Strided(length, choose_.OneIn(2) ? 1 : count, 1);
    }
  }

  Chooser& choose_;
  const ScriptTarget& target_;
  CacheScript script_;
  std::array<uint32_t, kScriptOpKinds + 1> weights_ = {};
  std::vector<Belief> sequences_;
  size_t current_ = 0;
};

}  // namespace

uint32_t ByteChooser::NextByte() {
  if (rest_.empty()) return 0;
  const auto byte = std::to_integer<uint32_t>(rest_.front());
  rest_ = rest_.subspan(1);
  return byte;
}

uint32_t ByteChooser::Below(uint32_t bound) {
  uint32_t value = NextByte();
  if (bound > 256) value |= NextByte() << 8;
  return value % bound;
}

ScriptTarget RegisteredTarget(std::string_view cache) {
  const CacheSpec spec = ParseCacheSpec(cache);
  // The pool of a plug-in is its own.
  return {.name = spec.name,
          .block_size = spec.block_size,
          .head_dim_multiple = spec.head_dim_multiple,
          .limits_pool = spec.plugin == nullptr,
          .takes_windows = spec.undo_rows > 0 && spec.windows.empty()};
}

CacheScript BuildScript(const ScriptTarget& target, Chooser& choose) {
  return Builder(target, choose).Build();
}

CacheScript GenerateScript(const ScriptTarget& target, uint64_t seed, int32_t operations) {
  RandomChooser choose(seed, operations);
  return BuildScript(target, choose);
}

CacheScript GenerateScript(std::string_view cache, uint64_t seed, int32_t operations) {
  return GenerateScript(RegisteredTarget(cache), seed, operations);
}

CacheScript DecodeScript(std::string_view cache, std::span<const std::byte> bytes) {
  ByteChooser choose(bytes);
  return BuildScript(RegisteredTarget(cache), choose);
}

}  // namespace lockstep
