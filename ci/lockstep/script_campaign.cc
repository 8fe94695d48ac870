#include "ci/lockstep/script_campaign.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "ci/lockstep/script_subject.h"
#include "engine/stopwatch.h"
#include "properties/exhaustive.h"
#include "properties/isolated_run.h"
#include "properties/script_builder.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kBatch = 256;                 // scripts of a process
constexpr int32_t kScriptMs = 10'000;           // that one may take
constexpr int32_t kLetterMs = 10 * 60 * 1'000;  // that all scripts of one first operation may take

// What one run tells through the process border. Both sides are one program, so counts are bytes.
static_assert(std::is_trivially_copyable_v<ScriptCounts>);

struct Told {
  ScriptCounts counts;
  std::optional<ScriptFinding> finding;
  std::string script;  // of the finding, where the parent does not know it
};

std::string Message(const Told& told) {
  std::string text(reinterpret_cast<const char*>(&told.counts), sizeof told.counts);
  if (told.finding) {
    text += fmt::format("{}\n{}\n{}\n{}", told.finding->op, told.finding->clause,
                        told.finding->what, told.script);
  }
  return text;
}

Told ParseMessage(const std::string& text) {
  Told told;
  if (text.size() < sizeof told.counts) return told;
  std::memcpy(&told.counts, text.data(), sizeof told.counts);
  if (text.size() == sizeof told.counts) return told;
  std::array<std::string, 3> lines;
  size_t at = sizeof told.counts;
  for (std::string& line : lines) {
    const size_t end = std::min(text.find('\n', at), text.size());
    line = text.substr(at, end - at);
    at = std::min(end + 1, text.size());
  }
  told.script = text.substr(at);
  told.finding = ScriptFinding{0, lines[1], lines[2]};
  std::from_chars(lines[0].data(), lines[0].data() + lines[0].size(), told.finding->op);
  return told;
}

// A process that did not come back, as a finding after the script's last operation.
ScriptFinding FindingOf(const CacheScript& script, const IsolatedEnd& end) {
  const bool hang = end.kind == IsolatedEnd::Kind::kTimeout;
  return {std::max(static_cast<int32_t>(script.ops.size()) - 1, 0), hang ? "hang" : "crash",
          "the cache " + end.Text()};
}

std::optional<ScriptFinding> JudgeAlone(const CacheScript& script, const ScriptSubject& subject) {
  const IsolatedCall call = RunIsolatedCall(
      [&] {
        const ScriptRun run = RunScript(script, subject);
        return Message({run.counts, run.finding, {}});
      },
      kScriptMs);
  if (call.end.kind != IsolatedEnd::Kind::kReturned) return FindingOf(script, call.end);
  return ParseMessage(call.output).finding;
}

FuzzFinding Named(const CacheScript& script, const ScriptFinding& finding) {
  if (script.ops.empty()) return {fmt::format("[{}]", finding.clause), finding.what};
  const ScriptOp& op = script.ops.at(static_cast<size_t>(finding.op));
  return {fmt::format("[{}] after {}", finding.clause, ScriptOpName(op.kind)), finding.what};
}

class Progress {
 public:
  void Show(int64_t scripts, int64_t operations) const {
    if (live_) fmt::print(stderr, "\r\033[K{} scripts, {} operations", scripts, operations);
  }
  void Clear() const {
    if (live_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool live_ = isatty(STDERR_FILENO) == 1;
};

// Shrinks a finding and keeps it, unless its place is known. Most findings are no crash, and those
// are shrunk here, without a process for each try.
void Keep(const CacheScript& script, const ScriptSubject& subject, const ScriptFinding& finding,
          FindingKeeper* keeper) {
  if (!keeper->IsNew(Named(script, finding))) return;
  const bool alone = finding.clause == "crash" || finding.clause == "hang";
  const ScriptJudge judge = [&](const CacheScript& s) {
    return alone ? JudgeAlone(s, subject) : RunScript(s, subject).finding;
  };
  const CacheScript shrunk = ShrinkScript(script, judge);
  const ScriptFinding smallest = judge(shrunk).value_or(finding);
  if (!keeper->IsNew(Named(shrunk, smallest))) return;
  PrintFindingLine(smallest);
  keeper->Keep("caches", Named(shrunk, smallest), ScriptText(shrunk));
}

std::vector<std::string> CachesOf(const ScriptCampaignOptions& options) {
  if (!options.caches.empty()) return options.caches;
  std::vector<std::string> names;
  for (const CacheSpec& spec : AllCaches()) names.push_back(spec.name);
  return names;
}

// The flags that choose the same caches and fault again.
std::string SubjectFlags(const ScriptCampaignOptions& options) {
  std::string flags;
  for (const std::string& cache : options.caches) flags += " --cache " + cache;
  if (!options.plant.empty()) flags += " --plant " + options.plant;
  return flags;
}

class ScriptCampaign {
 public:
  ScriptCampaign(const ScriptCampaignOptions& options, FindingKeeper* keeper)
      : options_(options),
        keeper_(*keeper),
        caches_(CachesOf(options)),
        random_(SeedOf(options.seed)),
        changed_(random_.Split(1).Next(), options.corpus) {
    for (const std::string& name : caches_) subjects_.push_back(SubjectFor(name, options.plant));
  }

  void Run() {
    fmt::print("lockstep fuzz: seed {}, {} operations a script, {} caches\n", options_.seed,
               options_.operations, caches_.size());
    while (!IsDone()) {
      const int64_t left = options_.scripts > 0 ? options_.scripts - scripts_ : kBatch;
      std::vector<CacheScript> batch;
      for (int64_t i = 0; i < std::min(kBatch, left); ++i) batch.push_back(NextScript());
      RunBatch(batch);
      progress_.Show(scripts_, counts_.operations);
    }
    progress_.Clear();
    if (keeper_.faults() == 0) fmt::print("holds: ");
    fmt::print("{} scripts, {} operations, {} rows compared, {:.0f} operations/s\n", scripts_,
               counts_.operations, counts_.rows_compared,
               static_cast<double>(counts_.operations) / watch_.seconds());
    fmt::print("digest {}\n{}: lockstep fuzz --seed {} --scripts {} --operations {}{}\n",
               CountsDigest().Hex(), keeper_.faults() == 0 ? "repeat" : "found by", options_.seed,
               scripts_, options_.operations, SubjectFlags(options_));
  }

 private:
  bool IsDone() const {
    if (keeper_.faults() > 0 && !keeper_.goes_on()) return true;
    return options_.scripts > 0 ? scripts_ >= options_.scripts
                                : watch_.seconds() >= options_.seconds;
  }

  CacheScript NextScript() {
    const std::string& cache = caches_[static_cast<size_t>(made_++) % caches_.size()];
    const uint64_t seed = random_.Next();
    if (!options_.corpus.empty() && seed % 8 == 0) return DecodeScript(cache, changed_.Next());
    return GenerateScript(cache, seed, options_.operations);
  }

  // Which subject the next script to count is on.
  const ScriptSubject& Subject() const {
    return subjects_[static_cast<size_t>(scripts_) % subjects_.size()];
  }

  // Each process goes on behind the script at which the last one ended.
  void RunBatch(const std::vector<CacheScript>& batch) {
    for (size_t first = 0; first < batch.size();) {
      const int64_t base = scripts_;
      const auto body = [&](int32_t i) {
        const size_t subject = static_cast<size_t>(base + i) % subjects_.size();
        const ScriptRun run = RunScript(batch[first + static_cast<size_t>(i)], subjects_[subject]);
        return Message({run.counts, run.finding, {}});
      };
      const IsolatedBatch ran =
          RunIsolatedBatch(static_cast<int32_t>(batch.size() - first), body, kScriptMs);
      for (const std::string& output : ran.outputs) {
        if (Take(batch[first++], ParseMessage(output))) return;
      }
      if (ran.end.kind == IsolatedEnd::Kind::kReturned) continue;
      const CacheScript& script = batch[first++];
      const auto finding = JudgeAlone(script, Subject());
      if (!finding) {
        throw Error({"fuzz",
                     fmt::format("a script {} after {} others, and holds alone", ran.end.Text(),
                                 ran.outputs.size()),
                     "run the campaign under the sanitizers (ci/fuzz)"});
      }
      if (Take(script, {{}, finding, {}})) return;
    }
  }

  // Whether the campaign is over.
  bool Take(const CacheScript& script, const Told& told) {
    counts_ += told.counts;
    const ScriptSubject& subject = Subject();
    ++scripts_;
    if (!told.finding) return false;
    progress_.Clear();
    Keep(script, subject, *told.finding, &keeper_);
    return !keeper_.goes_on();
  }

  // Of what was reached: equal for equal seeds and numbers of scripts, on every machine.
  Digest CountsDigest() const {
    DigestBuilder builder;
    for (int64_t count : {counts_.operations, counts_.granted, counts_.refused, counts_.committed,
                          counts_.updated, counts_.threw, counts_.exhausted, counts_.rolled_back,
                          counts_.forked, counts_.restored, counts_.rows_compared}) {
      builder.AddU64(static_cast<uint64_t>(count));
    }
    for (int64_t count : counts_.positions) builder.AddU64(static_cast<uint64_t>(count));
    return builder.Finish();
  }

  const ScriptCampaignOptions& options_;
  FindingKeeper& keeper_;
  std::vector<std::string> caches_;
  std::vector<ScriptSubject> subjects_;
  Random random_;
  ByteSource changed_;
  Progress progress_;
  Stopwatch watch_;
  int64_t made_ = 0;
  int64_t scripts_ = 0;
  ScriptCounts counts_;
};

// Every script of a small scope on one cache, cut by first operation.
class ExhaustiveCampaign {
 public:
  ExhaustiveCampaign(const std::string& cache, const ScriptCampaignOptions& options)
      : scope_(TinyScope(cache)),
        subject_(SubjectFor(cache, options.plant)),
        operations_(options.operations),
        letters_(ExhaustiveAlphabet(scope_)) {}

  void Run(FindingKeeper* keeper) {
    const auto count = static_cast<int32_t>(letters_.size());
    std::vector<std::string> outputs;
    int64_t scripts = 0;
    int64_t covered = 0;
    const auto body = [&](int32_t letter) { return Letter({letter}); };
    const IsolatedBatch ran = RunIsolatedBatch(count, body, kLetterMs);
    ScriptCounts counts;
    for (const std::string& output : ran.outputs) {
      const Told told = ParseMessage(output.substr(2 * sizeof(int64_t)));
      scripts += Number(output, 0);
      covered += Number(output, 1);
      counts += told.counts;
      if (!told.finding) continue;
      return Keep(ParseScript(told.script, "the finding"), subject_, *told.finding, keeper);
    }
    if (ran.end.kind != IsolatedEnd::Kind::kReturned) {
      const CacheScript script = Culprit(static_cast<int32_t>(ran.outputs.size()));
      return Keep(script, subject_, FindingOf(script, ran.end), keeper);
    }
    fmt::print(
        "holds: {:<26} {:>4} operations to choose from, {:>9} scripts of {}, {:>9} with "
        "shorter ones, {} rows compared\n",
        scope_.cache, count, scripts, operations_, covered, counts.rows_compared);
  }

 private:
  // All scripts with this beginning. Their number, how many with shorter ones, and what they told.
  std::string Letter(std::vector<int32_t> prefix) const {
    const ExhaustiveCounts counts = RunExhaustive(
        {.scope = scope_, .operations = operations_, .prefix = std::move(prefix)}, subject_);
    const std::array<int64_t, 2> numbers = {counts.scripts, counts.covered};
    const std::string text(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
    return text + Message({counts.run, counts.finding, ScriptText(counts.script)});
  }

  static int64_t Number(const std::string& output, size_t index) {
    int64_t number = 0;
    std::memcpy(&number, output.data() + index * sizeof number, sizeof number);
    return number;
  }

  // The first script that begins with this operation and does not come back.
  CacheScript Culprit(int32_t first) const {
    std::vector<int32_t> prefix = {first};
    while (std::ssize(prefix) < operations_) {
      prefix.push_back(0);
      const auto ends = [&] {
        return RunIsolatedCall([&] { return Letter(prefix); }, kLetterMs).end.kind !=
               IsolatedEnd::Kind::kReturned;
      };
      while (!ends()) {
        if (++prefix.back() < static_cast<int32_t>(letters_.size())) continue;
        throw Error({"fuzz",
                     "scripts of " + scope_.cache + " crash together and none of them alone",
                     "run them under the sanitizers (LOCKSTEP_FULL=1 ctest -R Exhaustive)"});
      }
    }
    CacheScript script = scope_;
    for (const int32_t letter : prefix) {
      script.ops.push_back(letters_[static_cast<size_t>(letter)]);
    }
    return script;
  }

  CacheScript scope_;
  ScriptSubject subject_;
  int32_t operations_;
  std::vector<ScriptOp> letters_;
};

}  // namespace

uint64_t SeedOf(const std::string& text) {
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, seed);
  if (result.ec == std::errc() && result.ptr == end) return seed;
  return DigestOfBytes(std::as_bytes(std::span(text))).low;
}

void RunScriptCampaign(const ScriptCampaignOptions& options, FindingKeeper* keeper) {
  ScriptCampaign(options, keeper).Run();
}

void RunExhaustiveCampaign(const ScriptCampaignOptions& options, FindingKeeper* keeper) {
  const std::vector<std::string> caches = CachesOf(options);
  fmt::print("lockstep fuzz: every script of {} operations on {} caches\n", options.operations,
             caches.size());
  for (const std::string& cache : caches) {
    if (keeper->faults() > 0 && !keeper->goes_on()) break;
    ExhaustiveCampaign(cache, options).Run(keeper);
    std::fflush(stdout);
  }
  fmt::print("{}: lockstep fuzz --exhaustive {}{}\n", keeper->faults() == 0 ? "repeat" : "found by",
             options.operations, SubjectFlags(options));
}

bool ScriptCanaryIsFound(int32_t operations) {
  const ScriptSubject subject = SubjectFor("simple", "stale-row:layer=0");
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    if (RunScript(GenerateScript("simple", seed, operations), subject).finding) return true;
  }
  return false;
}

}  // namespace lockstep::cli
