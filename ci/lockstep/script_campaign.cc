#include "ci/lockstep/script_campaign.h"

#include <fmt/format.h>

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
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/script_subject.h"
#include "engine/stopwatch.h"
#include "properties/class_reach.h"
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

// What a script or many reached and found, as one text: equal on every machine.
std::string GaveText(const ScriptCounts& counts, const std::optional<ScriptFinding>& finding) {
  DigestBuilder builder;
  for (int64_t count : {counts.operations, counts.granted, counts.refused, counts.committed,
                        counts.updated, counts.threw, counts.exhausted, counts.rolled_back,
                        counts.forked, counts.restored, counts.rows_compared}) {
    builder.AddU64(static_cast<uint64_t>(count));
  }
  for (int64_t count : counts.positions) builder.AddU64(static_cast<uint64_t>(count));
  return builder.Finish().Hex() + (finding ? finding->clause : "");
}

void Count(const ScriptCounts& counts, ShardResult* result) {
  result->counters["operations"] = counts.operations;
  result->counters["rows compared"] = counts.rows_compared;
}

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

  ScriptCampaignResult Run() {
    fmt::print("lockstep fuzz: seed {}, {} operations a script, {} caches\n", options_.seed,
               options_.operations, caches_.size());
    while (!IsDone()) {
      RunBatch(NextBatch());
      progress_.Show(fmt::format("{} scripts, {} operations", result_.inputs, counts_.operations));
    }
    progress_.Clear();
    if (keeper_.faults() == 0) fmt::print("holds: ");
    fmt::print("{} scripts, {} operations, {} rows compared, {:.0f} operations/s\n", result_.inputs,
               counts_.operations, counts_.rows_compared,
               static_cast<double>(counts_.operations) / watch_.seconds());
    fmt::print("{}", ClassTable(counts_));
    result_.inputs_of_all = options_.scripts > 0 ? options_.scripts : made_;
    result_.campaign =
        fmt::format("lockstep fuzz --seed {} --scripts {} --operations {}{}", options_.seed,
                    result_.inputs_of_all, options_.operations, SubjectFlags(options_));
    Count(counts_, &result_);
    fmt::print("digest {}\n{}: {}{}\n", result_.sum.Hex(),
               keeper_.faults() == 0 ? "repeat" : "found by", result_.campaign,
               options_.shard.is_all() ? "" : " --shard " + options_.shard.Text());
    return {std::move(result_), Missed()};
  }

 private:
  // Nothing is asked of few scripts: chance would have its say.
  std::vector<std::string> Missed() const {
    const bool asks =
        result_.inputs >= kScriptsOfEveryClass && options_.operations >= kOperationsOfEveryClass;
    if (!asks || keeper_.faults() > 0) return {};
    const auto missed = MissedClasses(counts_, caches_, subjects_);
    return {missed.begin(), missed.end()};
  }

  bool IsDone() const {
    if (keeper_.faults() > 0 && !keeper_.goes_on()) return true;
    return options_.scripts > 0 ? made_ >= options_.scripts : watch_.seconds() >= options_.seconds;
  }

  struct Numbered {
    int64_t number = 0;
    CacheScript script;
  };

  // The shard's next scripts: every input is drawn, so that any shard draws the same ones.
  std::vector<Numbered> NextBatch() {
    std::vector<Numbered> batch;
    while (std::ssize(batch) < kBatch && (options_.scripts == 0 || made_ < options_.scripts)) {
      const int64_t number = made_++;
      const uint64_t seed = random_.Next();
      const bool from_corpus = !options_.corpus.empty() && seed % 8 == 0;
      const Bytes bytes = from_corpus ? changed_.Next() : Bytes();
      if (!options_.shard.Has(number)) continue;
      const std::string& cache = caches_[static_cast<size_t>(number) % caches_.size()];
      batch.push_back({number, from_corpus ? DecodeScript(cache, bytes)
                                           : GenerateScript(cache, seed, options_.operations)});
    }
    return batch;
  }

  const ScriptSubject& SubjectOf(const Numbered& numbered) const {
    return subjects_[static_cast<size_t>(numbered.number) % subjects_.size()];
  }

  // Each process goes on behind the script at which the last one ended.
  void RunBatch(const std::vector<Numbered>& batch) {
    for (size_t first = 0; first < batch.size();) {
      const auto body = [&](int32_t i) {
        const Numbered& next = batch[first + static_cast<size_t>(i)];
        const ScriptRun run = RunScript(next.script, SubjectOf(next));
        return Message({run.counts, run.finding, {}});
      };
      const IsolatedBatch ran =
          RunIsolatedBatch(static_cast<int32_t>(batch.size() - first), body, kScriptMs);
      for (const std::string& output : ran.outputs) {
        if (Take(batch[first++], ParseMessage(output))) return;
      }
      if (ran.end.kind == IsolatedEnd::Kind::kReturned) continue;
      const Numbered& culprit = batch[first++];
      const auto finding = JudgeAlone(culprit.script, SubjectOf(culprit));
      if (!finding) {
        throw Error({"fuzz",
                     fmt::format("a script {} after {} others, and holds alone", ran.end.Text(),
                                 ran.outputs.size()),
                     "run the campaign under the sanitizers (ci/fuzz)"});
      }
      if (Take(culprit, {{}, finding, {}})) return;
    }
  }

  // Whether the campaign is over.
  bool Take(const Numbered& ran, const Told& told) {
    counts_ += told.counts;
    result_.Add(ran.number, GaveText(told.counts, told.finding));
    if (!told.finding) return false;
    progress_.Clear();
    Keep(ran.script, SubjectOf(ran), *told.finding, &keeper_);
    return !keeper_.goes_on();
  }

  const ScriptCampaignOptions& options_;
  FindingKeeper& keeper_;
  std::vector<std::string> caches_;
  std::vector<ScriptSubject> subjects_;
  Random random_;
  ByteSource changed_;
  ProgressLine progress_;
  Stopwatch watch_;
  int64_t made_ = 0;
  ScriptCounts counts_;
  ShardResult result_;
};

// Every script of a small scope on one cache, cut by first operation.
class ExhaustiveCampaign {
 public:
  ExhaustiveCampaign(const std::string& cache, const ScriptCampaignOptions& options)
      : scope_(TinyScope(cache)),
        subject_(SubjectFor(cache, options.plant)),
        operations_(options.operations),
        letters_(ExhaustiveAlphabet(scope_)) {}

  int32_t num_letters() const { return static_cast<int32_t>(letters_.size()); }

  // Those of the shard's letters, the first of which has the number `base` in the campaign.
  void Run(int64_t base, const Shard& shard, FindingKeeper* keeper, ShardResult* result) {
    std::vector<int32_t> mine;
    for (int32_t letter = 0; letter < num_letters(); ++letter) {
      if (shard.Has(base + letter)) mine.push_back(letter);
    }
    const auto body = [&](int32_t i) { return Letter({mine[static_cast<size_t>(i)]}); };
    const IsolatedBatch ran = RunIsolatedBatch(static_cast<int32_t>(mine.size()), body, kLetterMs);
    int64_t scripts = 0;
    int64_t covered = 0;
    ScriptCounts counts;
    for (size_t i = 0; i < ran.outputs.size(); ++i) {
      const std::string& output = ran.outputs[i];
      const Told told = ParseMessage(output.substr(2 * sizeof(int64_t)));
      scripts += Number(output, 0);
      covered += Number(output, 1);
      counts += told.counts;
      result->Add(base + mine[i], GaveText(told.counts, told.finding));
      if (!told.finding) continue;
      return Keep(ParseScript(told.script, "the finding"), subject_, *told.finding, keeper);
    }
    if (ran.end.kind != IsolatedEnd::Kind::kReturned) {
      const CacheScript script = Culprit(mine[ran.outputs.size()]);
      return Keep(script, subject_, FindingOf(script, ran.end), keeper);
    }
    result->counters["scripts"] += scripts;
    result->counters["rows compared"] += counts.rows_compared;
    fmt::print(
        "holds: {:<26} {:>4} operations to choose from, {:>9} scripts of {}, {:>9} with "
        "shorter ones, {} rows compared\n",
        scope_.script.cache, num_letters(), scripts, operations_, covered, counts.rows_compared);
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
                     "scripts of " + scope_.script.cache + " crash together and none of them alone",
                     "run them under the sanitizers (LOCKSTEP_FULL=1 ctest -R Exhaustive)"});
      }
    }
    CacheScript script = scope_.script;
    for (const int32_t letter : prefix) {
      script.ops.push_back(letters_[static_cast<size_t>(letter)]);
    }
    return script;
  }

  ExhaustiveScope scope_;
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

ScriptCampaignResult RunScriptCampaign(const ScriptCampaignOptions& options,
                                       FindingKeeper* keeper) {
  return ScriptCampaign(options, keeper).Run();
}

ShardResult RunExhaustiveCampaign(const ScriptCampaignOptions& options, FindingKeeper* keeper) {
  const std::vector<std::string> caches = CachesOf(options);
  ShardResult result;
  result.campaign =
      fmt::format("lockstep fuzz --exhaustive {}{}", options.operations, SubjectFlags(options));
  fmt::print("lockstep fuzz: every script of {} operations on {} caches\n", options.operations,
             caches.size());
  for (const std::string& cache : caches) {
    if (keeper->faults() > 0 && !keeper->goes_on()) break;
    ExhaustiveCampaign campaign(cache, options);
    campaign.Run(result.inputs_of_all, options.shard, keeper, &result);
    result.inputs_of_all += campaign.num_letters();
    std::fflush(stdout);
  }
  fmt::print("digest {}\n{}: {}{}\n", result.sum.Hex(),
             keeper->faults() == 0 ? "repeat" : "found by", result.campaign,
             options.shard.is_all() ? "" : " --shard " + options.shard.Text());
  return result;
}

bool ScriptCanaryIsFound(int32_t operations) {
  const ScriptSubject subject = SubjectFor("simple", "stale-row:layer=0");
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    if (RunScript(GenerateScript("simple", seed, operations), subject).finding) return true;
  }
  return false;
}

}  // namespace lockstep::cli
