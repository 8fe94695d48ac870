// What a run of engine_bench.h says, for people, for pages and for programs.
#ifndef LOCKSTEP_REPORTS_ENGINE_REPORT_H_
#define LOCKSTEP_REPORTS_ENGINE_REPORT_H_

#include <string>

#include "reports/engine_bench.h"
#include "reports/table.h"

namespace lockstep {

// Processor, number of processors and compiler, in one line.
std::string MachineLine();

// One row a point: tokens/s (median and quartiles over rounds), what it moved and computed a
// second, its limit, and the fraction of the limit of the same round.
Table EngineTable(const EngineBenchResult& result);

// One row for each number of threads and instruction set.
Table LimitTable(const EngineBenchResult& result);

// Points of more than one thread, apart for rounds with a fast and with a slow barrier between the
// processors: which two cores a machine of a cloud gives changes both barrier and bandwidth.
// Without rows when all rounds were of one kind.
Table RegimeTable(const EngineBenchResult& result);

// "others 0.3 % of the processors' time (at most 1.2 %), stolen 0.0 % (0.1 %)", over all samples.
std::string LoadLine(const EngineBenchResult& result);

// The tables and what they mean, as a part of a page. `command` repeats the run, `model` names it.
std::string EngineMarkdown(const EngineBenchResult& result, const std::string& command,
                           const std::string& model);

// Everything, each sample with the limits of its round. Text of a JSON object.
std::string EngineJson(const EngineBenchResult& result, const std::string& command,
                       const std::string& model);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_ENGINE_REPORT_H_
