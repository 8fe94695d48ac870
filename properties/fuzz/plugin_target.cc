// Plug-ins that lie: the script runner must find every lie that shows, whatever is asked of the
// plug-in, and nothing may throw past it. A table that no plug-in may have is refused.
#include <fmt/format.h>

#include <charconv>
#include <list>

#include "caches/error.h"
#include "caches/plugin_cache.h"
#include "oracle/decorators.h"
#include "properties/conform.h"
#include "properties/fuzz/chunks.h"
#include "properties/fuzz/hostile_plugin.h"
#include "properties/fuzz/script_judge.h"
#include "properties/fuzz/targets.h"
#include "properties/script.h"
#include "properties/script_builder.h"

namespace lockstep::fuzz {
namespace {

constexpr std::string_view kWord = "plugin";
constexpr size_t kHeadBytes = 2;  // the lie, and after how many honest answers

struct Hostility {
  LieKind lie = LieKind::kNone;
  int32_t after = 0;
  CacheScript script;
};

// The canary: makes up the memory that a grant did not come with.
class MemoryInventor final : public ForwardingCache {
 public:
  using ForwardingCache::ForwardingCache;
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    try {
      return ForwardingCache::TryReserveSlot(layer, positions);
    } catch (const std::runtime_error&) {
      const size_t elements = positions.size() * static_cast<size_t>(geometry().kv_stride());
      std::vector<float>& memory = invented_.emplace_back(2 * elements);
      return KvSlot{std::span(memory).first(elements), std::span(memory).last(elements)};
    }
  }
  std::unique_ptr<KvCache> Fork() override {
    return std::make_unique<MemoryInventor>(inner().Fork());
  }

 private:
  std::list<std::vector<float>> invented_;  // slots stay where they are
};

class PluginTarget final : public TypedTarget<Hostility> {
 public:
  explicit PluginTarget(const FuzzTargetOptions& options) : options_(options) {}

 private:
  Hostility Decode(std::span<const std::byte> bytes) const override {
    Hostility input;
    if (!bytes.empty()) {
      input.lie = static_cast<LieKind>(std::to_integer<size_t>(bytes[0]) % kLieKinds);
    }
    if (bytes.size() > 1) input.after = std::to_integer<int32_t>(bytes[1]) % 16;
    ByteChooser choose(bytes.subspan(std::min(bytes.size(), kHeadBytes)));
    input.script = BuildScript({.name = std::string(kWord), .limits_pool = false}, choose);
    return input;
  }

  std::string Print(const Hostility& input) const override {
    return fmt::format("{} {} after={}\n{}", kWord, LieName(input.lie), input.after,
                       ScriptText(input.script));
  }

  Hostility Parse(std::string_view text, std::string_view where) const override {
    const auto fail = [&] {
      throw Error({std::string(where), "must begin with 'plugin LIE after=N' and a script",
                   "see properties/fuzz/hostile_plugin.cc for the lies"});
    };
    const size_t begin = text.find(kWord);
    const size_t newline = text.find('\n', begin);
    if (begin == text.npos || newline == text.npos) fail();
    std::string_view line = text.substr(begin, newline - begin);
    constexpr std::string_view kAfter = " after=";
    const size_t after = line.find(kAfter);
    if (after == line.npos || after <= kWord.size() + 1) fail();
    Hostility input;
    const std::string_view name = line.substr(kWord.size() + 1, after - kWord.size() - 1);
    size_t lie = 0;
    while (lie < kLieKinds && LieName(static_cast<LieKind>(lie)) != name) ++lie;
    const std::string_view number = line.substr(after + kAfter.size());
    const auto end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, input.after);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
    if (lie == kLieKinds || !is_number || input.after < 0 || input.after > 15) fail();
    input.lie = static_cast<LieKind>(lie);
    input.script = ParseScript(text.substr(newline + 1), where);
    return input;
  }

  std::optional<FuzzFinding> Judge(const Hostility& input) const override {
    const HostilePlugin plugin(input.lie, input.after);
    std::shared_ptr<const PluginLibrary> library;
    try {
      library = PluginLibrary::FromTable(&plugin.table());
    } catch (const Error& error) {
      if (IsLieOfTable(input.lie)) return std::nullopt;
      return FuzzFinding{"a sound table is refused", error.what()};
    }
    if (IsLieOfTable(input.lie)) {
      return FuzzFinding{"a table that no plug-in may have is taken",
                         std::string(LieName(input.lie))};
    }
    return JudgeRun(input, plugin, library);
  }

  std::optional<FuzzFinding> JudgeRun(const Hostility& input, const HostilePlugin& plugin,
                                      const std::shared_ptr<const PluginLibrary>& library) const {
    const std::string lie(LieName(input.lie));
    ScriptSubject subject = PluginSubject(library);
    if (!options_.plant.empty()) {
      subject.make = [make = subject.make](const CacheScript& script) {
        return std::make_unique<MemoryInventor>(make(script));
      };
    }
    std::optional<ScriptFinding> finding;
    try {
      finding = RunScript(input.script, subject).finding;
    } catch (const std::exception& e) {
      if (input.lie == LieKind::kCreateNull && plugin.told()) return std::nullopt;
      return FuzzFinding{"the runner throws at " + lie, e.what()};
    }
    if (plugin.told() && !finding) {
      return FuzzFinding{"a lie is believed: " + lie,
                         "the script runs to its end without a finding"};
    }
    if (input.lie == LieKind::kNone && finding) {
      return FuzzFinding{"an honest plug-in is accused", finding->what};
    }
    return std::nullopt;
  }

  Hostility ShrinkInput(Hostility input, const InputJudge& judge) const override {
    const std::string place = judge(input).value_or(FuzzFinding{}).place;
    for (int32_t after = 0; after < input.after; ++after) {
      const auto finding = judge({input.lie, after, input.script});
      if (finding && finding->place == place) input.after = after;
    }
    const auto with = [&](CacheScript script) {
      return Hostility{input.lie, input.after, std::move(script)};
    };
    input.script =
        ShrinkScript(input.script,
                     ScriptJudgeOf([&](const CacheScript& script) { return judge(with(script)); }));
    return input;
  }

  FuzzTargetOptions options_;
};

}  // namespace

std::unique_ptr<FuzzTarget> MakePluginTarget(const FuzzTargetOptions& options) {
  RequireCanary("plugin", options);
  return std::make_unique<PluginTarget>(options);
}

}  // namespace lockstep::fuzz
