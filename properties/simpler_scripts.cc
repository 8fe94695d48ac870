#include "properties/simpler_scripts.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kPairsUpTo = 24;       // operations: pairs are many
constexpr int32_t kBlockElements = 32;  // of the block formats: below them a dimension is free

class Simplifier {
 public:
  explicit Simplifier(const CacheScript& script) : script_(script) {}

  std::vector<CacheScript> All() {
    DropChunks();
    DropPairs();
    MergeSlots();
    SimplifyGeometry();
    ShiftPositions();
    for (size_t i = 0; i < script_.ops.size(); ++i) SimplifyOp(i);
    return std::move(simpler_);
  }

 private:
  void DropChunks() {
    const size_t size = script_.ops.size();
    for (size_t chunk = std::max<size_t>(size / 2, 1); chunk > 0 && size > 1; chunk /= 2) {
      for (size_t end = size; end > 0; end -= std::min(chunk, end)) {
        const size_t begin = end > chunk ? end - chunk : 0;
        if (end - begin == size) continue;
        CacheScript& next = simpler_.emplace_back(script_);
        next.ops.erase(next.ops.begin() + static_cast<std::ptrdiff_t>(begin),
                       next.ops.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
  }

  // What makes sense in twos alone: a fork and its switch, a save and its restore.
  void DropPairs() {
    const size_t size = script_.ops.size();
    if (size <= 2 || size > kPairsUpTo) return;
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = i + 2; j < size; ++j) {  // neighbours were chunks
        CacheScript& next = simpler_.emplace_back(script_);
        next.ops.erase(next.ops.begin() + static_cast<std::ptrdiff_t>(j));
        next.ops.erase(next.ops.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  void MergeSlots() {
    for (size_t i = 0; i + 2 < script_.ops.size(); ++i) {
      const ScriptOp& reserve = script_.ops[i];
      const ScriptOp& write = script_.ops[i + 1];
      if (reserve.kind != ScriptOpKind::kReserve || write.kind != ScriptOpKind::kWrite ||
          script_.ops[i + 2].kind != ScriptOpKind::kCommit) {
        continue;
      }
      CacheScript& next = simpler_.emplace_back(script_);
      next.ops[i] = {.kind = ScriptOpKind::kUpdate,
                     .layer = reserve.layer,
                     .positions = reserve.positions,
                     .rows = write.rows};
      next.ops.erase(next.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                     next.ops.begin() + static_cast<std::ptrdiff_t>(i) + 3);
    }
  }

  void Geometry(int32_t KvGeometry::*field, int32_t value) {
    if (value <= 0 || value >= script_.geometry.*field) return;
    CacheScript& next = simpler_.emplace_back(script_);
    next.geometry.*field = value;
  }

  void SimplifyGeometry() {
    const KvGeometry& g = script_.geometry;
    if (g.num_layers > 1) {  // the last layer becomes the first
      CacheScript& next = simpler_.emplace_back(script_);
      next.geometry.num_layers = 1;
      for (ScriptOp& op : next.ops) op.layer = std::min(op.layer, 0);
    }
    Geometry(&KvGeometry::num_layers, g.num_layers - 1);
    Geometry(&KvGeometry::num_kv_heads, 1);
    Geometry(&KvGeometry::head_dim, g.head_dim % kBlockElements == 0 ? kBlockElements : 1);
    for (const int32_t max_length : {g.max_length / 2, g.max_length - 1}) {
      Geometry(&KvGeometry::max_length, max_length);
    }
    SimplifyWindows();
    if (script_.blocks > 0) simpler_.emplace_back(script_).blocks = 0;
  }

  void SimplifyWindows() {
    const KvGeometry& g = script_.geometry;
    if (g.window > 0) {  // none
      KvGeometry& next = simpler_.emplace_back(script_).geometry;
      next.window = next.full_interval = 0;
    }
    Geometry(&KvGeometry::window, g.window - 1);
    if (g.full_interval > 0) simpler_.emplace_back(script_).geometry.full_interval = 0;
  }

  void ShiftPositions() {
    for (const int32_t by : {8, 4, 2, 1}) {
      CacheScript next = script_;
      bool moved = false;
      for (ScriptOp& op : next.ops) {
        for (int32_t& p : op.positions) {
          if (p < by) continue;
          p -= by;
          moved = true;
        }
        const bool moves = op.kind == ScriptOpKind::kRollback && op.target >= by;
        if (moves) op.target -= by;
      }
      if (moved) simpler_.push_back(std::move(next));
    }
  }

  ScriptOp& Change(size_t op) { return simpler_.emplace_back(script_).ops[op]; }

  void SimplifyOp(size_t i) {
    const ScriptOp& op = script_.ops[i];
    const size_t rows = op.positions.size();
    if (rows > 3) {
      Change(i).positions.resize(rows / 2);
      auto& tail = Change(i).positions;
      tail.erase(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(rows / 2));
    }
    if (rows > 1) {
      Change(i).positions.pop_back();
      auto& tail = Change(i).positions;
      tail.erase(tail.begin());
    }
    if (op.layer > 0) Change(i).layer = op.layer - 1;
    if (op.rows > 1) Change(i).rows = 1;
    if (op.extra_keys != 0) Change(i).extra_keys = 0;
    if (op.extra_values != 0) Change(i).extra_values = 0;
    for (const int32_t target : Smaller(op.target)) Change(i).target = target;
    if (rows > 4) return;
    for (size_t r = 0; r < rows; ++r) {
      for (const int32_t p : Smaller(op.positions[r])) Change(i).positions[r] = p;
    }
  }

  // Nearer to zero, the nearest first; nothing wraps.
  static std::vector<int32_t> Smaller(int32_t value) {
    std::vector<int32_t> smaller;
    if (value == 0) return smaller;
    const int32_t nearer = value > 0 ? value - 1 : value + 1;
    for (const int32_t candidate : {0, value / 2, nearer}) {
      if (std::ranges::find(smaller, candidate) == smaller.end()) smaller.push_back(candidate);
    }
    return smaller;
  }

  const CacheScript& script_;
  std::vector<CacheScript> simpler_;
};

}  // namespace

std::vector<CacheScript> SimplerScripts(const CacheScript& script) {
  return Simplifier(script).All();
}

}  // namespace lockstep
