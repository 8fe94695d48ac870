// Hyperparameters of a model file, read and range-checked.
#ifndef LOCKSTEP_ENGINE_MODEL_MODEL_CONFIG_H_
#define LOCKSTEP_ENGINE_MODEL_MODEL_CONFIG_H_

#include "engine/gguf.h"
#include "engine/model.h"

namespace lockstep {

// Everything of ModelConfig but tied_head, which the tensors decide. Throws Error naming the key
// for a value out of range, dimensions that do not fit each other, and every "<architecture>.*" key
// whose value would change the model's function in a way that lockstep does not compute.
ModelConfig ReadModelConfig(const GgufFile& file);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_MODEL_CONFIG_H_
