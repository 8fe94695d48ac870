// Fuzz targets: total functions of bytes, in one table. `lockstep fuzz` runs them in any build;
// properties/fuzz/driver.cc makes each a libFuzzer or AFL++ binary; the corpus is replayed by
// ctest.
//
// Bytes are what fuzzers change. What they stand for has a text form, for people and for replay,
// and is shrunk by its own operations. A crash is not seen here: callers that want it as a finding
// run the target in a process of its own (isolated_run.h).
#ifndef LOCKSTEP_PROPERTIES_FUZZ_H_
#define LOCKSTEP_PROPERTIES_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// A fault found in a subject: plain data.
struct FuzzFinding {
  std::string place = {};  // what two inputs that show one fault share: "[U5] after update"
  std::string what = {};   // one sentence
};

// Whether an input, in its text form, shows a fault, however it is run.
using FuzzJudge = std::function<std::optional<FuzzFinding>(const std::string& text)>;

class FuzzTarget {
 public:
  virtual ~FuzzTarget() = default;
  FuzzTarget(const FuzzTarget&) = delete;
  FuzzTarget& operator=(const FuzzTarget&) = delete;

  // What the bytes do. Total: any bytes are an input.
  virtual std::optional<FuzzFinding> Run(std::span<const std::byte> bytes) const = 0;

  // The input as text. RunText(Text(b)) finds what Run(b) finds.
  virtual std::string Text(std::span<const std::byte> bytes) const = 0;

  // Throws Error with `where` for what is no text of this target.
  virtual std::optional<FuzzFinding> RunText(std::string_view text,
                                             std::string_view where) const = 0;

  // The smallest text, by operations, whose finding has the same place.
  // REQUIRES: the judge finds something in `text` (LS_CHECK).
  virtual std::string Shrink(std::string_view text, const FuzzJudge& judge) const = 0;

 protected:
  FuzzTarget() = default;
};

struct FuzzTargetOptions {
  // A fault to plant: the target's canary, of the caches any of oracle/faulty_cache.h. Empty: none.
  std::string plant = {};
  // Told a hash of each state that a subject reaches, beside the edges that a fuzzer sees. May be
  // empty.
  std::function<void(uint64_t)> feature = {};
};

struct FuzzTargetInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view canary;  // the plant that every campaign has to find: else it would find nothing
  std::string_view canary_summary;
  std::string_view word;  // which the text form begins with
  // Throws Error for a plant that the target does not have.
  std::unique_ptr<FuzzTarget> (*make)(const FuzzTargetOptions& options) = nullptr;
};

std::span<const FuzzTargetInfo> FuzzTargets();

// Throws Error naming the targets when there is none of that name.
const FuzzTargetInfo& FuzzTargetNamed(std::string_view name);

// The target whose text this is, by its first word that is no comment; nullptr when it is none's.
const FuzzTargetInfo* FuzzTargetOfText(std::string_view text);

// A self-contained gtest source that runs `text` on its target, and fails as long as it shows the
// fault. Throws Error with `where` when the text is no target's.
std::string FuzzTestSource(std::string_view text, std::string_view where, std::string_view plant);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_FUZZ_H_
