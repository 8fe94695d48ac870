// lockstep bench compare: two builds measured in turns, or two files, and what their difference is.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/bench_commands.h"
#include "ci/lockstep/bench_sides.h"
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/shell_word.h"
#include "engine/stopwatch.h"
#include "reports/bench_program.h"
#include "reports/compare_report.h"
#include "reports/compare_session.h"

namespace lockstep::cli {
namespace {

struct CompareOptions {
  std::vector<std::string> sides;
  std::string base;
  std::string filter = ".*";
  int32_t seconds = 180;
  int32_t rounds = 1000;
  int32_t sample_ms = 50;
  int32_t within = 3;
  int32_t alarms = 200;
  uint64_t seed = 1;
  std::vector<std::string> counters, added, gone;
  bool cpu_time = false, no_count = false, equal_builds = false, across_machines = false;
  bool small = false;
  std::string noise;
  bool json = false, github = false;
  std::string json_file, markdown, html, junit;
};

ComparisonOptions OptionsOf(const CompareOptions& options) {
  ComparisonOptions comparison;
  comparison.alpha = 1.0 / options.alarms;
  comparison.within = options.within / 100.0;
  comparison.seed = options.seed;
  comparison.across_machines = options.across_machines;
  // Two builds or files may be given in any order: nobody said which is newer.
  comparison.subject_is_newer = !options.base.empty();
  comparison.added = {options.added.begin(), options.added.end()};
  comparison.gone = {options.gone.begin(), options.gone.end()};
  if (!options.noise.empty()) comparison.noise_floors = ReadNoiseFloors(options.noise);
  return comparison;
}

GoogleBenchmarkOptions ReadingOf(const CompareOptions& options) {
  GoogleBenchmarkOptions reading;
  reading.cpu_time = options.cpu_time;
  for (const std::string& counter : options.counters) reading.counters.push_back(counter);
  return reading;
}

// The command without where its output goes.
std::string CommandLine(const CompareOptions& options) {
  std::string line = "lockstep bench compare";
  for (const std::string& side : options.sides) line += fmt::format(" {}", ShellWord(side));
  const auto add = [&](std::string_view flag, const std::string& value) {
    if (!value.empty()) line += fmt::format(" {} {}", flag, ShellWord(value));
  };
  add("--base", options.base);
  if (options.filter != CompareOptions().filter) add("--filter", options.filter);
  for (const std::string& counter : options.counters) add("--counter", counter);
  for (const std::string& name : options.added) add("--new", name);
  for (const std::string& name : options.gone) add("--gone", name);
  add("--noise", options.noise);
  for (const auto& [given, flag] :
       {std::pair(options.cpu_time, "--cpu-time"), std::pair(options.no_count, "--no-count"),
        std::pair(options.equal_builds, "--aa"), std::pair(options.small, "--small"),
        std::pair(options.across_machines, "--across-machines")}) {
    if (given) line += fmt::format(" {}", flag);
  }
  return line +
         fmt::format(" --seconds {} --rounds {} --sample-ms {} --within {} --alarms {} --seed {}",
                     options.seconds, options.rounds, options.sample_ms, options.within,
                     options.alarms, options.seed);
}

BenchRun HeaderOf(const BenchProgram& program, const std::string& commit,
                  const CompareOptions& options) {
  BenchRun run;
  run.machine = ThisMachine();
  run.commit = commit;
  run.build = program.build();
  run.command = program.path();
  run.seed = options.seed;
  return run;
}

// The run, with these benchmarks in it.
BenchRun Naming(BenchRun run, const std::vector<std::string>& names) {
  for (const std::string& name : names) run.benchmarks.push_back({.name = name});
  return run;
}

// What `names` has and `others` has, or has not.
std::vector<std::string> Those(const std::vector<std::string>& names,
                               const std::vector<std::string>& others, bool common) {
  std::vector<std::string> those;
  std::ranges::copy_if(names, std::back_inserter(those), [&](const std::string& name) {
    return (std::ranges::find(others, name) != others.end()) == common;
  });
  return those;
}

Comparison ComparePrograms(const BuiltBench& base, const BuiltBench& tree,
                           const CompareOptions& options) {
  const BenchProgramOptions program = {.filter = options.filter,
                                       .seconds = options.sample_ms / 1000.0,
                                       .small = options.small,
                                       .reading = ReadingOf(options)};
  BenchProgram baseline(base.executable, program), subject(tree.executable, program);
  BenchRun before = HeaderOf(baseline, base.commit, options);
  BenchRun now = HeaderOf(subject, tree.commit, options);
  SessionOptions session = {.comparison = OptionsOf(options), .rounds_max = options.rounds};
  if (baseline.build() == subject.build() && !options.equal_builds) {
    return Compare(Naming(before, baseline.names()), Naming(now, subject.names()),
                   session.comparison);
  }
  CheckNames(Naming(before, baseline.names()), Naming(now, subject.names()), session.comparison);
  before = Naming(before, Those(baseline.names(), subject.names(), false));
  now = Naming(now, Those(subject.names(), baseline.names(), false));
  if (!options.no_count) {
    const BenchProgram::Counting counting = baseline.CountInstructions();
    subject.CountInstructions();
    if (counting == BenchProgram::Counting::kNoValgrind) {
      fmt::print(stderr, "valgrind is not installed: instructions are not counted\n");
    } else if (counting == BenchProgram::Counting::kNothing) {
      fmt::print(stderr, "instructions are counted of one thread alone: here, of nothing\n");
    }
  }
  const Stopwatch since;
  ProgressLine line;
  MachineProbe probe;
  session.out_of_time = [&] { return since.seconds() > options.seconds; };
  session.on_progress = [&](const SessionProgress& progress) {
    const std::string text = fmt::format("round {}, {} of {} decided, {:.0f} of {} s: {}",
                                         progress.round, progress.decided, progress.benchmarks,
                                         since.seconds(), options.seconds, progress.measuring);
    line.Show(text.substr(0, 79));
  };
  const auto measure = [&](CompareSide side, const std::string& name) {
    return (side == CompareSide::kBaseline ? baseline : subject).Measure(name, &probe);
  };
  const std::vector<std::string> both = Those(baseline.names(), subject.names(), true);
  Comparison result = RunSession(before, now, both, measure, session);
  result.baseline.toolchain = baseline.toolchain();
  result.subject.toolchain = subject.toolchain();
  return result;
}

Comparison CompareSides(const CompareOptions& options) {
  const auto& sides = options.sides;
  if (!options.base.empty()) {
    if (sides.size() > 1) {
      throw Error({"compare", fmt::format("--base and {} sides", sides.size()),
                   "with --base give one build, or none for the working tree"});
    }
    const BuiltBench base = BuildBench(options.base);
    const BuiltBench tree =
        sides.empty() ? BuildBench("") : BuiltBench{BenchExecutable(sides[0]), ""};
    return ComparePrograms(base, tree, options);
  }
  if (sides.size() != 2) {
    throw Error({"compare", fmt::format("{} sides are given", sides.size()),
                 "give two files, two executables or two build folders, or --base REVISION"});
  }
  if (IsResultFile(sides[0]) != IsResultFile(sides[1])) {
    throw Error({"compare", fmt::format("'{}' and '{}' are not of one kind", sides[0], sides[1]),
                 "give two files, or two builds"});
  }
  if (IsResultFile(sides[0])) {
    const GoogleBenchmarkOptions reading = ReadingOf(options);
    return Compare(ReadRun(sides[0], reading), ReadRun(sides[1], reading), OptionsOf(options));
  }
  return ComparePrograms({BenchExecutable(sides[0]), ""}, {BenchExecutable(sides[1]), ""}, options);
}

ExitCode ExitCodeOf(Comparison::Outcome outcome) {
  switch (outcome) {
    case Comparison::Outcome::kHolds:
      return ExitCode::kHolds;
    case Comparison::Outcome::kRegression:
      return ExitCode::kDifference;
    case Comparison::Outcome::kInconclusive:
      break;
  }
  return ExitCode::kInconclusive;
}

ExitCode CompareBench(const CompareOptions& options) {
  const bool text = !options.json && !options.github;
  const Comparison result = CompareSides(options);
  const std::string command = CommandLine(options);
  const auto write = [](const std::string& path, const std::string& content) {
    if (!path.empty()) WriteWholeTextFile(path, content);
  };
  write(options.json_file, ComparisonJson(result, command));
  write(options.markdown, ComparisonMarkdown(result, command));
  write(options.html, ComparisonHtml(result, command));
  write(options.junit, ComparisonJunit(result));
  if (options.json) fmt::print("{}", ComparisonJson(result, command));
  if (options.github) fmt::print("{}", ComparisonAnnotations(result));
  if (text) {
    fmt::print("seed {}\n{}\n\n", options.seed, command);
    if (!result.identical || result.benchmarks[0].rounds > 0) {
      fmt::print("{}\n", TableText(ComparisonTable(result)));
    }
    for (const std::string& alone : OneSidedTexts(result)) fmt::print("{}\n", alone);
    for (const std::string& note : ComparisonNotes(result)) fmt::print("{}\n", note);
    fmt::print("\n{}\n", ComparisonSentence(result));
  }
  return ExitCodeOf(result.outcome());
}

}  // namespace

Command BenchCompareCommand() {
  const auto options = std::make_shared<CompareOptions>();
  return {
      "compare",
      "Compare two builds, measured in turns, or two files of results",
      {
          {"sides", "A B", "baseline and subject: files, executables or build folders",
           &options->sides},
          {"--base", "REVISION", "build this commit as A; B is a build, or the working tree",
           &options->base},
          {"--filter", "REGEX", "the benchmarks (an extended regular expression)",
           &options->filter},
          {"--seconds", "N", "measure no longer than this", IntTarget{&options->seconds, 1, 86400}},
          {"--rounds", "N", "rounds at most; each runs A and B twice",
           IntTarget{&options->rounds, 1, 10000}},
          {"--sample-ms", "N", "the length of one sample",
           IntTarget{&options->sample_ms, 1, 60000}},
          {"--within", "PERCENT", "so much more or less is the same",
           IntTarget{&options->within, 1, 100}},
          {"--alarms", "N", "equal builds differ in at most one comparison of so many",
           IntTarget{&options->alarms, 2, 1000000}},
          {"--seed", "N", "of the order of the sides and of the bootstrap", &options->seed},
          {"--counter", "NAME", "one more user counter that is compared exactly",
           &options->counters},
          {"--new", "NAME", "a benchmark, or BENCHMARK#COUNTER, that B alone may have; --base: all",
           &options->added},
          {"--gone", "NAME", "the same for A", &options->gone},
          {"--cpu-time", "", "compare processor time", &options->cpu_time},
          {"--no-count", "", "count no instructions (lockstep_bench under callgrind)",
           &options->no_count},
          {"--aa", "", "measure although the executables are the same", &options->equal_builds},
          {"--noise", "FILE", "noise floors: the --json-file of a comparison with --aa",
           &options->noise},
          {"--across-machines", "", "compare files of different machines",
           &options->across_machines},
          {"--small", "", "lockstep_bench's small setting", &options->small},
          {"--json", "", "one JSON object on standard output", &options->json},
          {"--github", "", "GitHub's annotations on standard output", &options->github},
          {"--json-file", "FILE", "write the JSON there", &options->json_file},
          {"--markdown", "FILE", "write a comment for a pull request", &options->markdown},
          {"--html", "FILE", "write a page", &options->html},
          {"--junit", "FILE", "write JUnit's XML", &options->junit},
      },
      [options] { return CompareBench(*options); },
      "Files are what --json-file keeps of a side, or Google Benchmark's JSON of any project.\n"
      "Exit code 1: something is slower, counts more or computes other bits; 3: not decided.\n"
      "How to read the verdicts: docs/benchmarks.md.\n"};
}

Command BenchSchemaCommand() {
  const auto comparison = std::make_shared<bool>(false);
  return {
      "schema",
      "Print the JSON Schema of a run's results",
      {{"--comparison", "", "that of what `bench compare --json-file` writes", comparison.get()}},
      [comparison] {
        if (*comparison) {
          fmt::print("{}", ComparisonSchema());
        } else {
          fmt::print("{}", RunSchema());
        }
        return ExitCode::kHolds;
      }};
}

}  // namespace lockstep::cli
