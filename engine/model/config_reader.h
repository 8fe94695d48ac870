// Reads ModelConfig from a file's metadata; what it reads of RoPE is in rope_config.cc.
#ifndef LOCKSTEP_ENGINE_MODEL_CONFIG_READER_H_
#define LOCKSTEP_ENGINE_MODEL_CONFIG_READER_H_

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/model/architectures.h"

namespace lockstep {

// The longest context: keeps every later product inside 64 bits and every table small.
constexpr int64_t kMaxContext = int64_t{1} << 30;

// Throws Error naming file and key.
[[noreturn]] void RefuseKey(const GgufFile& file, std::string_view key, std::string what,
                            std::string remedy);

// One file's metadata below "<architecture>.".
class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  ModelConfig Read();

 private:
  std::string Key(std::string_view name) const {
    return fmt::format("{}.{}", config_.architecture, name);
  }

  int32_t RequireCount(std::string_view name, int64_t high) const {
    return static_cast<int32_t>(file_.RequireInt(Key(name), 1, high));
  }

  int32_t FindCount(std::string_view name, int64_t low, int64_t high, int32_t otherwise) const {
    const auto value = file_.FindInt(Key(name), low, high);
    return value ? static_cast<int32_t>(*value) : otherwise;
  }

  [[noreturn]] void Refuse(std::string_view key, std::string what, std::string remedy) const {
    RefuseKey(file_, key, std::move(what), std::move(remedy));
  }

  // `otherwise`, or required without one.
  double FindInRange(std::string_view name, double low, double high,
                     std::optional<double> otherwise) const;
  // A finite number above 0, or `otherwise`.
  double FindPositive(std::string_view name, double otherwise) const;

  bool IsRead(std::string_view name) const;
  bool IsNeutral(std::string_view name) const;
  void ReadHeads();
  void ReadMultipliers();
  void ReadGemma();
  void ReadLocalLayers();
  void ReadExperts();
  void ReadWindow();
  void RefuseUnknownKeys() const;

  // rope_config.cc
  void ReadRope();
  void ReadScaling();
  void ReadLinear(std::string_view name);
  void ReadYarn();
  void CheckYarn(const RopeFrequencies& rope, std::string_view base) const;
  void ReadLongRope();

  const GgufFile& file_;
  const Architecture* architecture_ = nullptr;
  std::span<const std::string_view> scaling_keys_;  // that the kind of RoPE scaling reads
  ModelConfig config_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_CONFIG_READER_H_
