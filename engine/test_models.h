// Where tests find real model files. None is committed: a test that needs an absent one is skipped,
// loudly, with the file's name and the way to provide it.
#ifndef LOCKSTEP_ENGINE_TEST_MODELS_H_
#define LOCKSTEP_ENGINE_TEST_MODELS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "caches/test_paths.h"

namespace lockstep {

// The directory of model files: environment variable LOCKSTEP_MODELS, else the build's default.
inline std::string TestModelsDirectory() {
  const char* chosen = std::getenv("LOCKSTEP_MODELS");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return ModelsDefault();
}

// Path of the regular file `relative` below that directory; nullopt when there is none.
inline std::optional<std::string> FindTestModel(std::string_view relative) {
  const std::filesystem::path path = std::filesystem::path(TestModelsDirectory()) / relative;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return path.string();
}

}  // namespace lockstep

// Declares `const std::string path_var`, the path of a model file, or skips the test.
#define LOCKSTEP_TEST_MODEL_OR_SKIP(path_var, relative)                                    \
  const std::optional<std::string> path_var##_found = ::lockstep::FindTestModel(relative); \
  if (!path_var##_found) {                                                                 \
    GTEST_SKIP() << "no model file '" << (relative) << "' in '"                            \
                 << ::lockstep::TestModelsDirectory()                                      \
                 << "': set LOCKSTEP_MODELS to the directory that holds it";               \
  }                                                                                        \
  const std::string path_var = *path_var##_found

#endif  // LOCKSTEP_ENGINE_TEST_MODELS_H_
