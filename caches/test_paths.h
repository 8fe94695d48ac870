// Paths of this build that tests need. In one source file of their own: a compiler cache finds
// everything else again in another checkout.
#ifndef LOCKSTEP_CACHES_TEST_PATHS_H_
#define LOCKSTEP_CACHES_TEST_PATHS_H_

#include <string>

namespace lockstep {

std::string SourceDir();      // the root of the checkout
std::string ModelsDefault();  // LOCKSTEP_MODELS of the configuration

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_TEST_PATHS_H_
