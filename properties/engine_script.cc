#include "properties/engine_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "caches/device.h"
#include "caches/error.h"
#include "caches/registry.h"
#include "engine/kernels.h"
#include "engine/synthetic.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kEngineOpKinds> kNames = {
    "prefill", "decode", "speculate", "batch",   "cancel", "rollback", "fork",
    "end",     "clear",  "save",      "restore", "path",   "adapt",    "shift"};

// The name of `count` in the text of an operation; empty where it has none.
std::string_view CountName(EngineOpKind kind) {
  switch (kind) {
    case EngineOpKind::kDecode:
    case EngineOpKind::kSpeculate:
      return "n";
    case EngineOpKind::kCancel:
      return "at";
    case EngineOpKind::kRollback:
    case EngineOpKind::kFork:
    case EngineOpKind::kPath:
    case EngineOpKind::kAdapt:
    case EngineOpKind::kShift:
      return "to";
    default:
      return "";
  }
}

// That of `accept`.
std::string_view AcceptName(EngineOpKind kind) {
  if (kind == EngineOpKind::kShift) return "from";
  return kind == EngineOpKind::kSpeculate ? "accept" : "";
}

bool HasCuts(EngineOpKind kind) {
  return kind == EngineOpKind::kPrefill || kind == EngineOpKind::kBatch ||
         kind == EngineOpKind::kCancel;
}

bool HasTokens(EngineOpKind kind) {
  return HasCuts(kind) || kind == EngineOpKind::kDecode || kind == EngineOpKind::kSpeculate;
}

std::string PathText(int32_t path) {
  if (path == 0) return "direct";
  return path == 1 ? "legacy" : fmt::format("refuse{}", path - 2);
}

// What is left of a text, cut at any of the characters; nullopt at the end.
std::optional<std::string_view> Next(std::string_view* rest, std::string_view separators) {
  const size_t begin = rest->find_first_not_of(separators);
  if (begin == rest->npos) return std::nullopt;
  rest->remove_prefix(begin);
  const std::string_view word = rest->substr(0, rest->find_first_of(separators));
  rest->remove_prefix(word.size());
  return word;
}

constexpr std::string_view kBlanks = " \t\r";

// Lines without their comments.
std::optional<std::string_view> NextLine(std::string_view* text) {
  if (text->empty()) return std::nullopt;
  const std::string_view line = text->substr(0, text->find('\n'));
  text->remove_prefix(std::min(line.size() + 1, text->size()));
  return line.substr(0, line.find('#'));
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view where, int32_t first_line)
      : text_(text), where_(where), line_(first_line - 1) {}

  std::vector<EngineOp> ParseOps() {
    while (const auto line = NextLine(&text_)) {
      ++line_;
      std::string_view rest = *line;
      if (const auto first = Next(&rest, kBlanks)) script_.ops.push_back(ParseOp(*first, rest));
    }
    return std::move(script_.ops);
  }

  EngineScript Parse() {
    bool headed = false;
    while (const auto line = NextLine(&text_)) {
      ++line_;
      std::string_view rest = *line;
      const auto first = Next(&rest, kBlanks);
      if (!first) continue;
      if (headed) {
        script_.ops.push_back(ParseOp(*first, rest));
      } else {
        ParseHead(*first, rest);
        headed = true;
      }
    }
    if (!headed) Fail("has no line 'engine MODEL seed=S cache=NAME max=M'");
    return std::move(script_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error({fmt::format("{}, line {}", where_, line_), what,
                 "one operation a line, as properties/engine_script.h describes"});
  }

  void ParseHead(std::string_view first, std::string_view rest) {
    const auto model = Next(&rest, kBlanks);
    if (first != "engine" || !model) Fail("must be 'engine MODEL seed=S cache=NAME max=M'");
    script_.model = *model;
    while (const auto word = Next(&rest, kBlanks)) {
      const auto [key, value] = Split(*word);
      if (key == "cache") {
        for (auto names = value; const auto name = Next(&names, ",");) {
          script_.caches.emplace_back(*name);
        }
      } else if (key == "isa") {
        script_.isa = value;
      } else if (key == "device") {
        script_.device = value;
      } else if (key == "seed") {
        script_.seed = Number(value, 0, kAny);
      } else if (key == "max") {
        script_.max_length = Number(value, 1, 512);
      } else if (key == "step") {
        script_.step = Number(value, 1, 4096);
      } else if (key == "threads") {
        script_.threads = Number(value, 1, 64);
      } else if (key == "blocks") {
        script_.blocks = Number(value, 0, 4096);
      } else {
        Fail(fmt::format("unknown field '{}'", key));
      }
    }
    CheckHead();
  }

  // Each of these throws an Error of its own for a name that it does not know.
  void CheckHead() const {
    if (script_.caches.empty()) Fail("'cache=' is missing");
    if (script_.max_length == 0) Fail("'max=' is missing");
    const SyntheticSpec& model = SyntheticPreset(script_.model);
    SelectKernels(script_.isa);
    MakeScriptDevice(script_);
    for (const std::string& cache : script_.caches) {
      const std::string misfit = Misfit(ParseCacheSpec(cache), SyntheticGeometry(model, 1));
      if (!misfit.empty()) Fail(fmt::format("{} ({})", misfit, script_.model));
    }
    if (script_.max_length > model.context_length) {
      Fail(fmt::format("max={} exceeds the context of {}, {}", script_.max_length, script_.model,
                       model.context_length));
    }
  }

  EngineOp ParseOp(std::string_view first, std::string_view rest) const {
    EngineOp op;
    const auto name = std::ranges::find(kNames, first);
    if (name == kNames.end()) Fail(fmt::format("unknown operation '{}'", first));
    op.kind = static_cast<EngineOpKind>(name - kNames.begin());
    while (const auto word = Next(&rest, kBlanks)) {
      const auto [key, value] = Split(*word);
      if (key == "seq") {
        op.sequences = Numbers(value, 0, kEngineSequences - 1);
      } else if (key == "cuts" && HasCuts(op.kind)) {
        op.cuts = Numbers(value, 1, 4096);
      } else if (key == "tokens" && HasTokens(op.kind)) {
        op.tokens = Number(value, 0, kAny);
      } else if (key == AcceptName(op.kind)) {
        op.accept = Number(value, 0, 4096);
      } else if (key == CountName(op.kind)) {
        op.count = op.kind == EngineOpKind::kPath ? Path(value) : Number(value, 0, kAny);
      } else {
        Fail(fmt::format("'{}' has no field '{}'", first, key));
      }
    }
    CheckOp(op, first);
    return op;
  }

  void CheckOp(const EngineOp& op, std::string_view name) const {
    const bool batch = op.kind == EngineOpKind::kBatch || op.kind == EngineOpKind::kCancel;
    if (op.sequences.size() != 1 && !batch) Fail(fmt::format("'{}' takes one sequence", name));
    if (batch && op.cuts.size() != op.sequences.size()) {
      Fail(fmt::format("{} cuts for {} sequences", op.cuts.size(), op.sequences.size()));
    }
    if (op.kind == EngineOpKind::kSpeculate && op.accept > op.count) {
      Fail(fmt::format("{} of {} drafts cannot be accepted", op.accept, op.count));
    }
    if (op.kind == EngineOpKind::kFork && op.count >= kEngineSequences) {
      Fail(fmt::format("there is no sequence {}", op.count));
    }
    if (op.kind == EngineOpKind::kAdapt && op.count >= kAdapterSets) {
      Fail(fmt::format("there is no set {} of adapters", op.count));
    }
    if ((op.kind == EngineOpKind::kDecode || op.kind == EngineOpKind::kSpeculate) &&
        op.count > 4096) {
      Fail(fmt::format("{} steps are too many", op.count));
    }
  }

  std::pair<std::string_view, std::string_view> Split(std::string_view word) const {
    const size_t equals = word.find('=');
    if (equals == word.npos) Fail(fmt::format("'{}' is no field=value", word));
    return {word.substr(0, equals), word.substr(equals + 1)};
  }

  int32_t Number(std::string_view text, int32_t low, int32_t high) const {
    int32_t value = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (text.empty() || result.ec != std::errc() || result.ptr != end || value < low ||
        value > high) {
      Fail(fmt::format("'{}' is no number from {} to {}", text, low, high));
    }
    return value;
  }

  std::vector<int32_t> Numbers(std::string_view text, int32_t low, int32_t high) const {
    std::vector<int32_t> numbers;
    while (const auto item = Next(&text, ",")) numbers.push_back(Number(*item, low, high));
    return numbers;
  }

  int32_t Path(std::string_view text) const {
    if (text == "direct") return 0;
    if (text == "legacy") return 1;
    if (!text.starts_with("refuse")) Fail(fmt::format("'{}' is no path", text));
    return 2 + Number(text.substr(6), 0, 1024);
  }

  static constexpr int32_t kAny = 2147483647;

  std::string_view text_;
  std::string_view where_;
  int32_t line_;
  EngineScript script_;
};

}  // namespace

std::string_view EngineOpName(EngineOpKind kind) { return kNames.at(static_cast<size_t>(kind)); }

std::string EngineOpText(const EngineOp& op) {
  std::string text(EngineOpName(op.kind));
  if (op.sequences != std::vector<int32_t>{0}) {
    text += fmt::format(" seq={}", fmt::join(op.sequences, ","));
  }
  if (HasCuts(op.kind) && !op.cuts.empty())
    text += fmt::format(" cuts={}", fmt::join(op.cuts, ","));
  if (op.count != 0 && op.kind == EngineOpKind::kPath) {
    text += " to=" + PathText(op.count);
  } else if (op.count != 0) {
    text += fmt::format(" {}={}", CountName(op.kind), op.count);
  }
  if (op.accept != 0) text += fmt::format(" {}={}", AcceptName(op.kind), op.accept);
  if (op.tokens != 0) text += fmt::format(" tokens={}", op.tokens);
  return text;
}

std::string EngineScriptText(const EngineScript& script) {
  std::string text = fmt::format("engine {} seed={} cache={} isa={} max={} step={} threads={}",
                                 script.model, script.seed, fmt::join(script.caches, ","),
                                 script.isa, script.max_length, script.step, script.threads);
  if (script.blocks != 0) text += fmt::format(" blocks={}", script.blocks);
  if (!script.device.empty()) text += " device=" + script.device;
  text += '\n';
  for (const EngineOp& op : script.ops) text += EngineOpText(op) + '\n';
  return text;
}

std::shared_ptr<Device> MakeScriptDevice(const EngineScript& script) {
  constexpr std::string_view kExecutor = "host-executor";
  const std::string_view name = script.device;
  if (name.empty()) return nullptr;
  if (!name.starts_with(kExecutor)) return MakeDevice(name);
  HostExecutorOptions options = {.threads = script.threads};
  const std::string_view rest = name.substr(kExecutor.size());
  if (!rest.empty()) {
    const char* end = rest.data() + rest.size();
    const auto result = std::from_chars(rest.data() + 1, end, options.seed);
    if (rest[0] != '/' || result.ec != std::errc() || result.ptr != end) {
      throw Error({fmt::format("device '{}'", name), "is not known",
                   "use host-executor, host-executor/SEED or cuda"});
    }
  }
  return MakeHostExecutor(options);
}

EngineScript ParseEngineScript(std::string_view text, std::string_view where) {
  return Parser(text, where, 1).Parse();
}

std::vector<EngineOp> ParseEngineOps(std::string_view text, std::string_view where,
                                     int32_t first_line) {
  return Parser(text, where, first_line).ParseOps();
}

bool IsEngineScript(std::string_view text) {
  while (const auto line = NextLine(&text)) {
    std::string_view rest = *line;
    if (const auto word = Next(&rest, kBlanks)) return word == "engine";
  }
  return false;
}

}  // namespace lockstep
