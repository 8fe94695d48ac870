#include "properties/hostile_checks.h"

#include <fcntl.h>
#include <fenv.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include "caches/random.h"
#include "properties/hostile_cache.h"
#include "properties/hostile_scripts.h"
#include "properties/plugin_border.h"
#include "properties/plugin_heap.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace lockstep {
namespace {

using Library = std::shared_ptr<const PluginLibrary>;
using MakeCache = std::function<std::unique_ptr<KvCache>(const CacheScript&)>;

std::optional<ScriptFinding> FindingOf(const CacheScript& script, const ScriptSubject& subject) {
  return RunScript(script, subject).finding;
}

ScriptFinding AtTheEnd(const CacheScript& script, std::string clause, std::string what) {
  return {static_cast<int32_t>(script.ops.size()) - 1, std::move(clause), std::move(what)};
}

// What `subject` finds, unless the plug-in as it is shows a fault too: that is other clauses'.
std::optional<ScriptFinding> FoundByIt(const CacheScript& script, const Library& plugin,
                                       const ScriptSubject& subject) {
  const auto finding = FindingOf(script, subject);
  if (!finding || FindingOf(script, PluginSubject(plugin))) return std::nullopt;
  return finding;
}

ScriptJudge Runs(const Library& plugin) {
  return [plugin](const CacheScript& script) { return FindingOf(script, PluginSubject(plugin)); };
}

// The border ends the process; a finding of the runner is other clauses'.
ScriptJudge RunsBehindBorder(const Library& plugin) {
  return [plugin](const CacheScript& script) -> std::optional<ScriptFinding> {
    FindingOf(script, PluginSubject(BehindBorder(plugin)));
    return std::nullopt;
  };
}

ScriptJudge RunsStarved(const Library& plugin) {
  return [plugin](const CacheScript& script) {
    PluginHeap::Watch(*plugin);
    ScriptSubject subject = PluginSubject(plugin);
    subject.make = [make = subject.make](const CacheScript& s) {
      return StarvedCache::Make([&] { return make(s); });
    };
    return FoundByIt(script, plugin, subject);
  };
}

// The first run lets the plug-in allocate what it keeps for ever.
ScriptJudge RunsWithoutLeak(const Library& plugin) {
  return [plugin](const CacheScript& script) -> std::optional<ScriptFinding> {
    PluginHeap::Watch(*plugin);
    const ScriptSubject subject = PluginSubject(plugin);
    FindingOf(script, subject);
    const PluginHeap::Live before = PluginHeap::live();
    FindingOf(script, subject);
    const PluginHeap::Live after = PluginHeap::live();
    if (after.blocks <= before.blocks) return std::nullopt;
    return AtTheEnd(script, "memory",
                    fmt::format("{} bytes in {} allocations are left when all caches are destroyed",
                                after.bytes - before.bytes, after.blocks - before.blocks));
  };
}

// Bytes that a missing initialisation cannot make look right: no length, no position, NaN.
ScriptJudge RunsInDirtyMemory(const Library& plugin) {
  return [plugin](const CacheScript& script) {
    PluginHeap::Watch(*plugin);
    PluginHeap::FillWith(std::byte{0xff});
    auto finding = FindingOf(script, PluginSubject(plugin));
    PluginHeap::FillWith(std::byte{0});
    if (finding && FindingOf(script, PluginSubject(plugin))) finding.reset();
    PluginHeap::FillWith(std::nullopt);
    return finding;
  };
}

// One neighbour is older than the subject, one younger.
ScriptJudge RunsDisturbed(const Library& plugin, uint64_t seed) {
  return [plugin, seed](const CacheScript& script) {
    ScriptSubject subject = PluginSubject(plugin);
    subject.make = [plugin, seed](const CacheScript& s) {
      KvGeometry other = s.geometry;
      other.max_length += 3;
      ++other.num_kv_heads;
      const auto older = std::make_shared<PluginCache>(plugin, other);
      auto cache = std::make_unique<PluginCache>(plugin, s.geometry);
      const auto younger = std::make_shared<PluginCache>(plugin, other);
      return std::make_unique<DisturbedCache>(
          std::make_unique<DisturbedCache>(std::move(cache), older, seed), younger, ~seed);
    };
    return FoundByIt(script, plugin, subject);
  };
}

// ---- The process ---------------------------------------------------------------------------

uint32_t FloatingPointControl() {
#if defined(__SSE__)
  return _mm_getcsr() & ~uint32_t{_MM_EXCEPT_MASK};
#else
  return static_cast<uint32_t>(fegetround());
#endif
}

// What a library shares with its host and has to leave alone.
struct ProcessState {
  std::string open_files;
  std::string directory;
  std::string locale;
  std::string handlers;  // of signals, and what is blocked
  uint32_t floating_point = 0;
  off_t printed = 0;  // bytes, on standard output

  static ProcessState Now() {
    ProcessState state;
    for (int file = 0; file < 64; ++file) {
      if (fcntl(file, F_GETFD) >= 0) state.open_files += fmt::format("{} ", file);
    }
    std::error_code error;
    state.directory = std::filesystem::current_path(error).string();
    state.locale = setlocale(LC_ALL, nullptr);
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, nullptr, &blocked);
    for (int number = 1; number < 32; ++number) {
      struct sigaction action = {};
      sigaction(number, nullptr, &action);
      state.handlers += fmt::format("{} {} ", reinterpret_cast<uintptr_t>(action.sa_handler),
                                    sigismember(&blocked, number));
    }
    state.floating_point = FloatingPointControl();
    std::fflush(stdout);
    state.printed = lseek(STDOUT_FILENO, 0, SEEK_END);
    return state;
  }

  std::string ChangeTo(const ProcessState& after) const {
    if (after.open_files != open_files) return "open descriptors are not as before";
    if (after.printed != printed) return "something was printed on standard output";
    if (after.directory != directory) return "the working directory is another one";
    if (after.locale != locale) return "the locale is another one";
    if (after.handlers != handlers) return "signal handlers or blocked signals are not as before";
    if (after.floating_point != floating_point) {
      return "the floating-point environment is not as before";
    }
    if (waitpid(-1, nullptr, WNOHANG | __WALL) >= 0) return "a process was left behind";
    return "";
  }
};

ScriptJudge RunsWithoutATrace(const Library& plugin) {
  return [plugin](const CacheScript& script) -> std::optional<ScriptFinding> {
    const int printed = memfd_create("standard output", 0);
    dup2(printed, STDOUT_FILENO);
    close(printed);
    const ProcessState before = ProcessState::Now();
    FindingOf(script, PluginSubject(plugin));
    const std::string change = before.ChangeTo(ProcessState::Now());
    if (change.empty()) return std::nullopt;
    return AtTheEnd(script, "process", change);
  };
}

// ---- The list ------------------------------------------------------------------------------

std::vector<CacheScript> Joined(std::initializer_list<std::vector<CacheScript>> lists) {
  std::vector<CacheScript> joined;
  for (const auto& list : lists) joined.insert(joined.end(), list.begin(), list.end());
  return joined;
}

}  // namespace

ScriptSubject PluginSubject(std::shared_ptr<const PluginLibrary> plugin) {
  ScriptSubject subject;
  subject.make = [plugin](const CacheScript& script) {
    return std::make_unique<PluginCache>(plugin, script.geometry);
  };
  subject.model.block_size = plugin->table().block_size;
  subject.model.refuses_host_slots = !plugin->grants_slots();
  subject.forks = plugin->forks();
  subject.saves = plugin->saves();
  subject.compares_storage = false;
  return subject;
}

std::vector<HostileCheck> HostileChecks(const HostileOptions& options) {
  const Library& plugin = options.plugin;
  const ScriptTarget& target = options.target;
  Random random(options.seed ^ 0x40571e);
  std::vector<CacheScript> generated;
  for (int32_t i = 0; i < options.scripts; ++i) {
    generated.push_back(GenerateScript(target, random.Next(), options.operations));
  }
  const auto directed = Joined({OrderScripts(target), AbandonScripts(target)});
  const auto both = Joined({directed, generated});
  const auto all = Joined({RangeScripts(target), EmptyScripts(target), both});
  return {
      {.clause = "geometry",
       .summary = "sizes below one and sizes that overflow are refused [U7]",
       .cases = GeometryCases(plugin)},
      {.clause = "range",
       .summary = "layers, positions and sums out of every range are refused [R1, R2, U4, C2, B1]",
       .scripts = RangeScripts(target),
       .judge = Runs(plugin)},
      {.clause = "empty",
       .summary = "lists without positions do nothing [U3, R2, C2]",
       .scripts = EmptyScripts(target),
       .judge = Runs(plugin)},
      {.clause = "order",
       .summary = "calls in any order, relatives that ended [C2, B2, B4]",
       .scripts = OrderScripts(target),
       .judge = Runs(plugin)},
      {.clause = "blocks",
       .summary = "an abandoned reservation gives back what it took [B2, B3]",
       .scripts = AbandonScripts(target),
       .judge = Runs(plugin),
       .unsupported = !plugin->grants_slots()},
      {.clause = "bounds",
       .summary = "arrays are read and written inside their bounds, const ones never, none later",
       .scripts = all,
       .judge = RunsBehindBorder(plugin),
       .crashes_only = true},
      {.clause = "allocation",
       .summary = "the n-th allocation fails, for every n, and leaves no trace [M2]",
       .scripts = both,
       .judge = RunsStarved(plugin)},
      {.clause = "memory",
       .summary = "what is allocated is freed by destroy",
       .scripts = both,
       .judge = RunsWithoutLeak(plugin)},
      {.clause = "dirty",
       .summary = "memory that nobody cleared never shows [V2]",
       .scripts = both,
       .judge = RunsInDirtyMemory(plugin)},
      {.clause = "neighbours",
       .summary = "two caches do not show in each other, nor does an earlier one",
       .scripts = both,
       .judge = RunsDisturbed(plugin, options.seed)},
      {.clause = "threads",
       .summary = "two caches may be used by a thread each",
       .cases = ThreadCases(plugin, false, options.seed)},
      {.clause = "fork threads",
       .summary = "a cache and its fork may be used by a thread each",
       .cases = ThreadCases(plugin, true, options.seed),
       .unsupported = !plugin->forks() || !plugin->has(LOCKSTEP_KV_CONCURRENT_FORKS)},
      {.clause = "save",
       .summary = "restored equals saved; what is not a save of this geometry is refused [S1, S2]",
       .cases = SaveCases(plugin),
       .unsupported = !plugin->saves()},
      {.clause = "process",
       .summary = "output, descriptors, children, signals, locale, rounding are left alone",
       .scripts = both,
       .judge = RunsWithoutATrace(plugin)},
  };
}

}  // namespace lockstep
