// Runs a scenario and writes down what it computed: a golden file, and the rows of every stage when
// they are wanted.
//
// Nothing is compared here, and nothing ends a recording: a wrong engine or cache is recorded to
// its end, its failures as outcomes.
#ifndef LOCKSTEP_GOLDEN_RECORD_H_
#define LOCKSTEP_GOLDEN_RECORD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "caches/device.h"
#include "engine/kernels.h"
#include "engine/trace.h"
#include "golden/facts.h"
#include "golden/scenario.h"
#include "properties/engine_script_runner.h"

namespace lockstep {

struct RecordOptions {
  std::string cache = {};                // a registered name; empty: the scenario's first
  const KernelTable* kernels = nullptr;  // nullptr: SelectKernels()
  int32_t threads = 1;
  bool legacy = false;       // every sequence on the legacy write path, and no `gate` facts
  bool keep_values = false;  // Recording::steps too
  std::string models = {};   // the folder of model files
  // Where the engine runs the layers that the cache has there, and no `gate` facts.
  std::shared_ptr<Device> device = nullptr;
  // make_cache and make_driver put wrong ones in the place of right ones; nothing else of it is
  // looked at.
  EngineSubject subject = {};
  // Sees each sequence that is alive after an operation. May be empty.
  std::function<void(int32_t op, int32_t sequence, const KvCache& cache)> on_state = {};
};

// One internal step of one sequence. The number of a step is its index in Recording::steps.
struct RecordedStep {
  int32_t op = 0;
  int32_t sequence = 0;
  int32_t adapters = 0;  // the set of MakeAdapterSets that it ran with
  std::vector<int32_t> positions = {};
  std::vector<int32_t> tokens = {};                 // by position
  std::vector<RecordingTrace::Entry> entries = {};  // the stages, in order of computation
  std::vector<float> logits = {};  // [vocab_size] as the engine returned them; empty unless last
};

struct Recording {
  GoldenFile golden;
  std::vector<RecordedStep> steps = {};  // with keep_values
  int64_t device_layer_steps = 0;        // DeviceUse of engine/transformer.h
};

// The same facts on every cache that stores rows in one way, but for `gate`, on either write path,
// every kernel table and number of threads, and on a device. Throws what LoadScenarioModel throws,
// and Error when no cache can be made. Not for several threads at once.
Recording Record(const Scenario& scenario, const RecordOptions& options = {});

// One file of recordings on several caches that store rows in one way: the facts of the first, and
// the `gate` facts of all. What else differs between the first and another is returned instead.
struct MergedGolden {
  GoldenFile golden;
  std::vector<FactChange> disagreements;
  std::string cache;       // that disagrees
  bool on_device = false;  // every recording had layers that ran there
};
MergedGolden RecordGroup(const Scenario& scenario, const RowsGroup& group, RecordOptions options);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_RECORD_H_
