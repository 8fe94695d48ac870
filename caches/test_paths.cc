#include "caches/test_paths.h"

namespace lockstep {

std::string SourceDir() { return LOCKSTEP_SOURCE_DIR; }
std::string ModelsDefault() { return LOCKSTEP_MODELS_DEFAULT; }

}  // namespace lockstep
