#include "properties/script.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <optional>

#include "caches/error.h"
#include "caches/random.h"
#include "properties/script_fields.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kScriptOpKinds> kNames = {
    "update", "reserve", "write",  "commit", "abandon", "rollback", "clear",
    "fork",   "end",     "switch", "save",   "restore", "read"};

// A run stands for its members only while that is the shorter text.
std::string PositionsText(std::span<const int32_t> positions) {
  if (positions.empty()) return "none";
  std::string text;
  for (size_t i = 0; i < positions.size();) {
    size_t end = i + 1;
    while (end < positions.size() && positions[end - 1] != std::numeric_limits<int32_t>::max() &&
           positions[end] == positions[end - 1] + 1) {
      ++end;
    }
    if (!text.empty()) text += ',';
    text += end - i > 1 ? fmt::format("{}..{}", positions[i], positions[end - 1])
                        : fmt::format("{}", positions[i]);
    i = end;
  }
  return text;
}

// What is left of a line, cut at blanks.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line.substr(0, line.find('#'))) {}

  std::optional<std::string_view> Next() {
    const size_t begin = rest_.find_first_not_of(" \t\r");
    if (begin == rest_.npos) return std::nullopt;
    rest_.remove_prefix(begin);
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t\r"));
    rest_.remove_prefix(word.size());
    return word;
  }

 private:
  std::string_view rest_;
};

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  CacheScript Parse() {
    CacheScript script;
    bool headed = false;
    while (!text_.empty()) {
      const std::string_view line = text_.substr(0, text_.find('\n'));
      text_.remove_prefix(std::min(line.size() + 1, text_.size()));
      ++line_;
      Words words(line);
      const auto first = words.Next();
      if (!first) continue;
      if (!headed) {
        ParseHead(*first, words, &script);
        headed = true;
      } else {
        script.ops.push_back(ParseOp(*first, words));
      }
    }
    if (!headed) Fail("has no line 'cache NAME layers=L heads=H dim=D max=M'");
    return script;
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error({fmt::format("{}, line {}", where_, line_), what,
                 "one operation a line, as properties/script.h describes"});
  }

  void ParseHead(std::string_view first, Words& words, CacheScript* script) const {
    const auto name = words.Next();
    if (first != "cache" || !name) Fail("must be 'cache NAME layers=L heads=H dim=D max=M'");
    script->cache = *name;
    while (const auto word = words.Next()) {
      const auto [key, value] = Split(*word);
      int32_t* field = HeadField(script, key);
      if (field == nullptr) Fail(fmt::format("unknown field '{}'", key));
      *field = Number(value);
    }
  }

  ScriptOp ParseOp(std::string_view first, Words& words) const {
    ScriptOp op;
    const auto kind = ScriptOpOf(first);
    if (!kind) Fail(fmt::format("unknown operation '{}'", first));
    op.kind = *kind;
    while (const auto word = words.Next()) {
      const auto [key, value] = Split(*word);
      if (key == "at") {
        op.positions = Positions(value);
      } else if (key == "rows") {
        op.rows = static_cast<uint32_t>(Number(value));
      } else if (int32_t* field = OpField(&op, key)) {
        *field = Number(value);
      } else {
        Fail(fmt::format("unknown field '{}'", key));
      }
    }
    return op;
  }

  std::pair<std::string_view, std::string_view> Split(std::string_view word) const {
    const size_t equals = word.find('=');
    if (equals == word.npos) Fail(fmt::format("'{}' is no field=value", word));
    return {word.substr(0, equals), word.substr(equals + 1)};
  }

  int32_t Number(std::string_view text) const {
    int32_t value = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (text.empty() || result.ec != std::errc() || result.ptr != end) {
      Fail(fmt::format("'{}' is no 32-bit number", text));
    }
    return value;
  }

  std::vector<int32_t> Positions(std::string_view text) const {
    std::vector<int32_t> positions;
    if (text == "none") return positions;
    while (true) {
      const std::string_view item = text.substr(0, text.find(','));
      const size_t dots = item.find("..");
      const int32_t first = Number(item.substr(0, dots));
      const int32_t last = dots == item.npos ? first : Number(item.substr(dots + 2));
      if (int64_t{last} - first >= kMaxScriptPositions || last < first) {
        Fail(fmt::format("'{}' is no rising range of fewer than {} positions", item,
                         kMaxScriptPositions));
      }
      for (int64_t p = first; p <= last; ++p) positions.push_back(static_cast<int32_t>(p));
      if (item.size() == text.size()) return positions;
      text.remove_prefix(item.size() + 1);
    }
  }

  std::string_view text_;
  std::string_view where_;
  int line_ = 0;
};

float EdgeValue(uint64_t bits) {
  constexpr std::array<uint32_t, 12> kEdges = {
      0x00000000u, 0x80000000u,  // zeros
      0x00000001u, 0x80000001u,  // subnormals
      0x2f800000u,               // 2^-32: its F16 scale is zero
      0x4b189680u,               // 1e7: its F16 scale is infinite
      0x7f7fffffu, 0x7f800000u,  // the largest, infinity
      0xff800000u, 0x7fc00000u,  // -infinity, NaN
      0x3f000000u, 0xbfc00000u,  // 0.5, -1.5: ties
  };
  return std::bit_cast<float>(kEdges[bits % kEdges.size()]);
}

}  // namespace

std::string_view ScriptOpName(ScriptOpKind kind) { return kNames.at(static_cast<size_t>(kind)); }

std::optional<ScriptOpKind> ScriptOpOf(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ScriptOpKind>(i);
  }
  return std::nullopt;
}

int32_t* HeadField(CacheScript* script, std::string_view key) {
  if (key == "layers") return &script->geometry.num_layers;
  if (key == "heads") return &script->geometry.num_kv_heads;
  if (key == "dim") return &script->geometry.head_dim;
  if (key == "max") return &script->geometry.max_length;
  if (key == "window") return &script->geometry.window;
  if (key == "full_interval") return &script->geometry.full_interval;
  if (key == "blocks") return &script->blocks;
  return nullptr;
}

int32_t* OpField(ScriptOp* op, std::string_view key) {
  if (key == "layer") return &op->layer;
  if (key == "to") return &op->target;
  if (key == "extra_keys") return &op->extra_keys;
  if (key == "extra_values") return &op->extra_values;
  return nullptr;
}

bool HasPositions(ScriptOpKind kind) {
  return kind == ScriptOpKind::kUpdate || kind == ScriptOpKind::kReserve ||
         kind == ScriptOpKind::kCommit;
}

std::string ScriptOpText(const ScriptOp& op) {
  std::string text(ScriptOpName(op.kind));
  if (op.layer != 0) text += fmt::format(" layer={}", op.layer);
  if (HasPositions(op.kind)) text += " at=" + PositionsText(op.positions);
  if (op.rows != 0) text += fmt::format(" rows={}", static_cast<int32_t>(op.rows));
  if (op.target != 0) text += fmt::format(" to={}", op.target);
  if (op.extra_keys != 0) text += fmt::format(" extra_keys={}", op.extra_keys);
  if (op.extra_values != 0) text += fmt::format(" extra_values={}", op.extra_values);
  return text;
}

std::string ScriptText(const CacheScript& script) {
  const KvGeometry& g = script.geometry;
  std::string text = fmt::format("cache {} layers={} heads={} dim={} max={}", script.cache,
                                 g.num_layers, g.num_kv_heads, g.head_dim, g.max_length);
  if (g.window != 0) text += fmt::format(" window={}", g.window);
  if (g.full_interval != 0) text += fmt::format(" full_interval={}", g.full_interval);
  if (script.blocks != 0) text += fmt::format(" blocks={}", script.blocks);
  text += '\n';
  for (const ScriptOp& op : script.ops) text += ScriptOpText(op) + '\n';
  return text;
}

CacheScript ParseScript(std::string_view text, std::string_view where) {
  return Parser(text, where).Parse();
}

ScriptRows RowValues(const KvGeometry& geometry, uint32_t seed, int32_t layer,
                     std::span<const int32_t> positions) {
  const int64_t stride = geometry.kv_stride();
  const bool edges = seed % 4 == 3;
  ScriptRows rows;
  Random random(seed);
  for (size_t i = 0; i < positions.size(); ++i) {
    for (int64_t e = 0; e < stride; ++e) {
      const int64_t place = (int64_t{layer & 15} * 64 + static_cast<int64_t>(i)) * 64 + e;
      const auto where = static_cast<float>(place);
      const uint64_t bits = random.Next();
      const float noise = static_cast<float>(bits >> 56) / 256.0f;
      const float key = 1.0f + where / 64.0f + noise;
      rows.keys.push_back(edges && bits % 3 == 0 ? EdgeValue(bits >> 8) : key);
      rows.values.push_back(edges && bits % 5 == 0 ? EdgeValue(bits >> 16) : -(key * 0.375f));
    }
  }
  return rows;
}

}  // namespace lockstep
