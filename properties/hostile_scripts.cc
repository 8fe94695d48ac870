#include "properties/hostile_scripts.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

// Two layers that can be exchanged, odd heads, and room for two blocks and a bit.
KvGeometry Geometry(const ScriptTarget& target) {
  return {.num_layers = 2,
          .num_kv_heads = 3,
          .head_dim = target.head_dim_multiple,
          .max_length = std::clamp(2 * target.block_size + 1, 9, 600)};
}

class Scripts {
 public:
  explicit Scripts(const ScriptTarget& target)
      : name_(target.name), geometry_(Geometry(target)), block_(std::max(target.block_size, 4)) {}

  int32_t max_length() const { return geometry_.max_length; }
  // Where the second block begins; without blocks, somewhere.
  int32_t block() const { return block_; }

  // The operations in the text form of script.h, one a string.
  void Add(std::initializer_list<std::string> lines) {
    std::string text =
        fmt::format("cache {} layers={} heads={} dim={} max={}\n", name_, geometry_.num_layers,
                    geometry_.num_kv_heads, geometry_.head_dim, geometry_.max_length);
    for (const std::string& line : lines) text += line + "\n";
    scripts_.push_back(ParseScript(text, "hostile script"));
  }

  // The operation on a cache with rows, and while a reservation is open that has to stay as it was.
  void AddAlone(const std::string& operation) {
    Add({"update at=0..2 rows=2", "update layer=1 at=0..2 rows=3", operation, "read to=1"});
    Add({"update at=0..2 rows=2", "reserve at=3", operation, "write rows=5", "commit at=3"});
  }

  std::vector<CacheScript> Take() { return std::move(scripts_); }

 private:
  std::string name_;
  KvGeometry geometry_;
  int32_t block_;
  std::vector<CacheScript> scripts_;
};

std::vector<std::string> ImpossiblePositions(int32_t max_length) {
  const int32_t past = max_length;
  return {"-1", fmt::format("{}", past), fmt::format("{}", kMax), fmt::format("{}", kMin),
          fmt::format("0,{}", past), fmt::format("{},0", past), "0,-1", "-1..0",
          fmt::format("{}..{}", past - 1, past), fmt::format("0..{}", past),
          fmt::format("{}..{}", kMax - 1, kMax), fmt::format("{},{}", kMax, kMin),
          fmt::format("{}..{}", kMin, kMin + 1),
          // Times a row of 3 or 12 elements or bytes, or of a power of two: small in 32 bits.
          fmt::format("{}", 1 << 30), fmt::format("{}", 1 << 28), fmt::format("{}", 1431655766)};
}

}  // namespace

std::vector<CacheScript> RangeScripts(const ScriptTarget& target) {
  Scripts scripts(target);
  const std::initializer_list<int32_t> layers = {-1, 2, 3, 1 << 30, kMax, kMin};
  for (const std::string& at : ImpossiblePositions(scripts.max_length())) {
    scripts.AddAlone(fmt::format("update at={} rows=4", at));
    scripts.AddAlone(fmt::format("reserve at={}", at));
    scripts.AddAlone(fmt::format("commit at={}", at));
    scripts.AddAlone(fmt::format("update layer=2 at={} rows=4", at));
    scripts.AddAlone(fmt::format("commit layer=-1 at={}", at));
  }
  for (const int32_t layer : layers) {
    scripts.AddAlone(fmt::format("update layer={} at=0 rows=4", layer));
    scripts.AddAlone(fmt::format("reserve layer={} at=3", layer));
    scripts.AddAlone(fmt::format("commit layer={} at=3", layer));
    scripts.AddAlone(fmt::format("commit layer={} at=0", layer));
    scripts.AddAlone(fmt::format("read layer={} to=0", layer));
  }
  for (const int32_t length : {-1, 4, scripts.max_length(), scripts.max_length() + 1, kMax, kMin}) {
    scripts.AddAlone(fmt::format("rollback to={}", length));
  }
  return scripts.Take();
}

std::vector<CacheScript> EmptyScripts(const ScriptTarget& target) {
  Scripts scripts(target);
  for (const int32_t layer : {0, 1, 2, -1, kMax}) {
    for (const std::string_view call : {"update", "reserve", "commit"}) {
      const std::string operation = fmt::format("{} layer={} at=none", call, layer);
      scripts.Add({operation});
      scripts.AddAlone(operation);
    }
  }
  return scripts.Take();
}

std::vector<CacheScript> OrderScripts(const ScriptTarget& target) {
  Scripts scripts(target);
  scripts.Add({"commit at=0"});
  scripts.Add({"commit at=0", "reserve at=0", "write rows=2", "commit at=0"});
  scripts.Add({"reserve at=0", "write rows=2", "commit at=0", "commit at=0", "commit at=1"});
  scripts.Add({"reserve at=0..1", "write rows=2", "commit at=0", "commit at=0..2", "commit at=1",
               "commit at=0..1"});
  scripts.Add({"reserve at=0", "commit layer=1 at=0", "write rows=2", "commit at=0"});
  scripts.Add({"reserve at=0..1", "write rows=2", "reserve at=0", "commit at=0..1"});
  scripts.Add({"reserve at=0", "write rows=2", "update at=1 rows=3", "commit at=0"});
  scripts.Add({"reserve at=0", "update layer=1 at=0 rows=3", "write rows=2", "commit at=0"});
  scripts.Add({"reserve at=0", "write rows=2", "rollback to=0", "commit at=0"});
  scripts.Add({"reserve at=0", "write rows=2", "clear", "commit at=0", "update at=1 rows=3"});
  scripts.Add({"reserve at=2", "write rows=2", "rollback to=0", "update at=3 rows=3"});
  scripts.Add({"update at=0..3 rows=2", "rollback to=1", "rollback to=1", "rollback to=2"});
  scripts.Add({"update at=0..3 rows=2", "rollback to=1", "commit at=1", "commit at=0"});
  scripts.Add({"clear", "clear", "rollback to=0", "rollback to=0", "update at=0 rows=2"});
  scripts.Add({"reserve at=0", "write rows=2", "fork", "commit at=0"});
  scripts.Add({"reserve at=0", "write rows=2", "fork", "switch to=1", "commit at=0"});
  // Sequence 0 is the source; the end of one makes sequence 0 of what is left.
  scripts.Add({"update at=0..2 rows=2", "fork", "end", "read to=1", "update at=3 rows=3"});
  scripts.Add({"update at=0..2 rows=2", "fork", "switch to=1", "update at=1 rows=3", "end",
               "read to=1", "update at=3 rows=4"});
  scripts.Add({"update at=0..2 rows=2", "fork", "fork", "end", "end", "rollback to=1",
               "update at=2 rows=3"});
  scripts.Add(
      {"fork", "clear", "switch to=1", "update at=0 rows=2", "switch to=0", "update at=0 rows=3"});
  return scripts.Take();
}

std::vector<CacheScript> AbandonScripts(const ScriptTarget& target) {
  Scripts scripts(target);
  const std::string all = fmt::format("update at=0..{} rows=2", scripts.max_length() - 1);
  const std::string first = "reserve at=0";
  const std::string second = fmt::format("reserve at={}", scripts.block());
  for (const std::string& reserve : {first, second}) {
    scripts.Add({reserve, all});
    scripts.Add({reserve, "rollback to=0", all});
    scripts.Add({reserve, "clear", all});
    scripts.Add({reserve, "update at=0 rows=3", all});
    scripts.Add({reserve, "rollback to=0", reserve, "rollback to=0", all});
    scripts.Add({reserve, "fork", all});
  }
  scripts.Add({first, second, all});
  scripts.Add({second, first, all});
  scripts.Add({first, "reserve layer=1 at=0", "rollback to=0", all});
  scripts.Add({"update at=0..2 rows=3", "fork", second, "end", all});
  return scripts.Take();
}

}  // namespace lockstep
