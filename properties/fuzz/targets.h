// The targets, one file each, and what they share.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_TARGETS_H_
#define LOCKSTEP_PROPERTIES_FUZZ_TARGETS_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "properties/fuzz.h"

namespace lockstep::fuzz {

std::unique_ptr<FuzzTarget> MakeCachesTarget(const FuzzTargetOptions& options);
std::unique_ptr<FuzzTarget> MakeEngineTarget(const FuzzTargetOptions& options);
std::unique_ptr<FuzzTarget> MakeGgufTarget(const FuzzTargetOptions& options);
std::unique_ptr<FuzzTarget> MakePluginTarget(const FuzzTargetOptions& options);
std::unique_ptr<FuzzTarget> MakeTokenizerTarget(const FuzzTargetOptions& options);

// Throws Error unless the plant is empty or the target's canary.
void RequireCanary(std::string_view target, const FuzzTargetOptions& options);

// A target over an input of its own type: bytes and text are two ways to write one.
template <typename Input>
class TypedTarget : public FuzzTarget {
 public:
  std::optional<FuzzFinding> Run(std::span<const std::byte> bytes) const final {
    return Judge(Decode(bytes));
  }
  std::string Text(std::span<const std::byte> bytes) const final { return Print(Decode(bytes)); }
  std::optional<FuzzFinding> RunText(std::string_view text, std::string_view where) const final {
    return Judge(Parse(text, where));
  }
  std::string Shrink(std::string_view text, const FuzzJudge& judge) const final {
    return Print(
        ShrinkInput(Parse(text, "input"), [&](const Input& input) { return judge(Print(input)); }));
  }

 protected:
  using InputJudge = std::function<std::optional<FuzzFinding>(const Input&)>;

  virtual Input Decode(std::span<const std::byte> bytes) const = 0;
  virtual std::string Print(const Input& input) const = 0;
  virtual Input Parse(std::string_view text, std::string_view where) const = 0;
  virtual std::optional<FuzzFinding> Judge(const Input& input) const = 0;
  virtual Input ShrinkInput(Input input, const InputJudge& judge) const = 0;
};

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_TARGETS_H_
