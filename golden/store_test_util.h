// A small case for tests of trees of golden files.
#ifndef LOCKSTEP_GOLDEN_STORE_TEST_UTIL_H_
#define LOCKSTEP_GOLDEN_STORE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace lockstep::store_test {

// `text` with the first `from` replaced, which has to be there.
inline std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Two operations on these caches, as they stand in a list of case.toml: "\"simple\", \"paged/2\"".
inline std::string SmallCase(std::string_view caches) {
  constexpr std::string_view kCase = R"(why = "Three tokens at once, then one more token."
covers = ["decode_step"]
caches = [CACHES]
max_length = 8
script = """
prefill cuts=3 tokens=7
decode n=1
"""
[model]
preset = "tiny-mha-4x4-f32"
seed = 1
)";
  return Replaced(std::string(kCase), "CACHES", caches);
}

}  // namespace lockstep::store_test

#endif  // LOCKSTEP_GOLDEN_STORE_TEST_UTIL_H_
