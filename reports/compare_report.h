// What a comparison says, for people, for pull requests and for programs.
#ifndef LOCKSTEP_REPORTS_COMPARE_REPORT_H_
#define LOCKSTEP_REPORTS_COMPARE_REPORT_H_

#include <map>
#include <string>
#include <vector>

#include "reports/comparison.h"
#include "reports/table.h"

namespace lockstep {

// "REGRESSION: 2 of 40 benchmarks: 1 slower, 1 with more instructions".
std::string ComparisonSentence(const Comparison& comparison);

// "slower by 9.8 % [7.1, 12.3]", "same within 3 %", "inconclusive, needs about 12 more rounds".
std::string VerdictText(const BenchComparison& benchmark);

// What speaks against it besides time: "instructions 1000 -> 1030 (+3 %)", "bits changed: ab ->
// cd". Counters that fell come last.
std::vector<std::string> CounterTexts(const BenchComparison& benchmark);

// Both in one line, what speaks against it first.
std::string ReproachText(const BenchComparison& benchmark);

// "new: benchmark 'a' (1.83 ms; bytes 64)", "gone: counter 'bytes' of 'a' (64)".
std::string NewText(const OneSided& added);
std::string GoneText(const OneSided& gone);
// All of them, what is gone first.
std::vector<std::string> OneSidedTexts(const Comparison& comparison);

// A value with its unit, at a length that people read: "1.83 ms", "46.1 tokens/s".
std::string ValueText(double value, const std::string& unit);

// In order of concern: regressed, inconclusive, faster, same.
std::vector<const BenchComparison*> ByConcern(const Comparison& comparison);

// One row a benchmark, by concern.
Table ComparisonTable(const Comparison& comparison);

// What was compared with what, and what the numbers mean, a sentence each.
std::vector<std::string> ComparisonNotes(const Comparison& comparison);

// For a comment: the sentence first, then what is not the same and what one side alone has, the
// rest folded away.
std::string ComparisonMarkdown(const Comparison& comparison, const std::string& command);

// JUnit's XML as CI services read it: a test case a benchmark, and one for each thing that one side
// alone has; these and inconclusive ones are skipped.
std::string ComparisonJunit(const Comparison& comparison);

// Lines of GitHub's workflow commands: an error for each regression, a warning where nothing was
// decided, a notice for what one side alone has, and one with the sentence.
std::string ComparisonAnnotations(const Comparison& comparison);

// Text of a JSON object, with both runs and all samples; the JSON Schema (draft 4) that it
// follows; and the noise floors in one of an A/A comparison. Throws Error, with the place, when it
// is none.
std::string ComparisonJson(const Comparison& comparison, const std::string& command);
std::string ComparisonSchema();
std::map<std::string, double> ReadNoiseFloors(const std::string& path);

// One self-contained HTML page: no script, no reference to another resource, the reader's theme.
std::string ComparisonHtml(const Comparison& comparison, const std::string& command);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_COMPARE_REPORT_H_
