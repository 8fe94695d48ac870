// From what an engine computed to facts.
#ifndef LOCKSTEP_GOLDEN_RECORD_WRITER_H_
#define LOCKSTEP_GOLDEN_RECORD_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "caches/kv_cache.h"
#include "golden/record.h"
#include "oracle/driver.h"

namespace lockstep {

class FactWriter {
 public:
  // Operation `op` begins.
  void Begin(int32_t op, const std::string& text);

  // The next step, by number.
  void Step(const RecordedStep& step, int32_t number);

  // How the operation ended.
  void Outcome(const std::string& outcome);

  // What a sequence holds now. Hashes that cannot be read are said to be so.
  void State(int32_t sequence, const KvCache& cache);

  // The calls that all layers of a sequence saw in the operation.
  void Gate(int32_t sequence, const std::string& cache, const PathCounts& counts);

  // In order.
  std::vector<Fact> Finish();

 private:
  void Add(Fact fact) { facts_.push_back(std::move(fact)); }
  void Stages(const RecordedStep& step, Fact fact, int32_t layers);

  int32_t op_ = 0;
  std::vector<Fact> facts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_RECORD_WRITER_H_
