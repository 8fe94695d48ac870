// Random scripts of cache operations, run on a subject and on ModelCache side by side. After each
// operation everything that the contract says is compared, of every sequence that is alive: the
// outcome (granted, refused, exception type), lengths, rows to the bit as every query reads them,
// the cache hash and the stored bytes.
#ifndef LOCKSTEP_ORACLE_SCRIPT_CACHE_SCRIPT_H_
#define LOCKSTEP_ORACLE_SCRIPT_CACHE_SCRIPT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "caches/kv_cache.h"
#include "oracle/model_cache.h"

namespace lockstep::oracle {

struct ScriptSubject {
  std::string name;
  std::function<std::unique_ptr<KvCache>(const KvGeometry&)> make;
  ModelCacheOptions model;        // what to expect; geometry and max_step_rows are filled in
  int32_t head_dim_multiple = 1;  // head_dim is a multiple of this
  bool forks = true;
};

// What ran, so that an agreement about nothing shows.
struct ScriptCounts {
  int64_t operations = 0;
  int64_t granted = 0;
  int64_t refused = 0;
  int64_t committed = 0;
  int64_t updated = 0;
  int64_t threw = 0;
  int64_t exhausted = 0;  // of these, PoolExhausted
  int64_t rolled_back = 0;
  int64_t forked = 0;
  int64_t rows_compared = 0;

  ScriptCounts& operator+=(const ScriptCounts& other);
};

// The first difference as a sentence, followed by what was done to the sequence; nullopt when there
// is none. The script depends on the seed alone.
std::optional<std::string> RunScript(const ScriptSubject& subject, uint64_t seed,
                                     int32_t operations, ScriptCounts* counts);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_SCRIPT_CACHE_SCRIPT_H_
