#include "ci/lockstep/script_subject.h"

#include <fmt/format.h>

#include <memory>

#include "caches/error.h"
#include "oracle/faulty_cache.h"

namespace lockstep::cli {

ScriptSubject SubjectFor(std::string_view cache, const std::string& plant) {
  ScriptSubject subject = RegisteredSubject(cache);
  if (plant.empty()) return subject;
  subject.make = [make = subject.make, parsed = ParsePlant(plant)](const CacheScript& script) {
    return std::make_unique<FaultyCache>(make(script), parsed);
  };
  return subject;
}

void CheckRunnable(const CacheScript& script, const ScriptSubject& subject,
                   const std::string& where) {
  try {
    subject.make(script);
  } catch (const std::invalid_argument& e) {
    throw Error({where, fmt::format("no cache {} can be made of it: {}", script.cache, e.what()),
                 "correct the first line"});
  } catch (const std::bad_alloc&) {
    throw Error({where, fmt::format("a cache {} of this size does not fit memory", script.cache),
                 "correct the first line"});
  }
}

void PrintFindingLine(const ScriptFinding& finding) {
  fmt::print("FOUND after operation {}: [{}] {}\n", finding.op + 1, finding.clause, finding.what);
}

void PrintFinding(const CacheScript& script, const ScriptFinding& finding) {
  PrintFindingLine(finding);
  fmt::print("{}", ScriptText(script));
}

}  // namespace lockstep::cli
