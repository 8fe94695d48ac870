#include "properties/engine_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "caches/random.h"
#include "engine/synthetic.h"

namespace lockstep {
namespace {

struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("cancelled by the script") {}
};

// Refuses every run of one layer, on the host and on a device.
class RefusingCache final : public ForwardingCache {
 public:
  RefusingCache(KvCache& inner, int32_t layer) : ForwardingCache(inner), layer_(layer) {}

  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    if (layer == layer_) return std::nullopt;
    return inner().TryReserveSlot(layer, positions);
  }
  DeviceKv* device_kv(int32_t layer) override {
    return inner().device_kv(layer) == nullptr ? nullptr : &on_device_;
  }
  std::unique_ptr<KvCache> Fork() override { return inner().Fork(); }

 private:
  class OnDevice final : public ForwardingDeviceKv {
   public:
    explicit OnDevice(RefusingCache* cache)
        : ForwardingDeviceKv(cache->inner()), layer_(cache->layer_) {}

    std::optional<DeviceKvSlot> TryReserveDeviceSlot(int32_t layer,
                                                     std::span<const int32_t> positions,
                                                     DeviceStream& stream) override {
      if (layer == layer_) return std::nullopt;
      return ForwardingDeviceKv::TryReserveDeviceSlot(layer, positions, stream);
    }

   private:
    int32_t layer_;
  };

  int32_t layer_;
  OnDevice on_device_{this};
};

std::unique_ptr<KvCache> OnPath(KvCache& cache, int32_t path) {
  if (path == 0) return nullptr;
  if (path == 1) return std::make_unique<UpdateOnlyCache>(cache);
  return std::make_unique<RefusingCache>(cache, path - 2);
}

}  // namespace

StepPart SeededPart(const TokenChoice& choice, int32_t length, int32_t vocab_size) {
  Random random = Random(static_cast<uint64_t>(choice.seed))
                      .Split(static_cast<uint64_t>(choice.sequence))
                      .Split(choice.salt);
  StepPart part{.sequence = choice.sequence};
  for (int32_t i = 0; i < choice.count; ++i) {
    const auto token = static_cast<int32_t>(random.Below(static_cast<uint32_t>(vocab_size)));
    part.tokens.push_back(i == 0 && choice.greedy >= 0 ? choice.greedy : token);
    part.positions.push_back(length + i);
  }
  return part;
}

std::vector<ReferenceAdapter> AdapterFiles(const ModelConfig& config, int32_t set) {
  constexpr SyntheticAdapterSpec kSpecs[] = {{.rank = 3}, {.rank = 5, .type = GgmlType::kF16}};
  constexpr double kScales[] = {1, -0.625};
  std::vector<ReferenceAdapter> files;
  for (size_t i = 0; i < std::size(kSpecs); ++i) {
    if ((set >> i & 1) == 0) continue;
    files.push_back({GgufFile::FromBytes(MakeSyntheticAdapterImage(config, kSpecs[i], i + 1),
                                         fmt::format("adapter {}", i + 1)),
                     kScales[i]});
  }
  return files;
}

AdapterSets MakeAdapterSets(const ModelConfig& config) {
  AdapterSets sets;
  for (int32_t set = 0; set < kAdapterSets; ++set) {
    for (const ReferenceAdapter& file : AdapterFiles(config, set)) {
      sets[static_cast<size_t>(set)].push_back(
          {LoraAdapter::Load(*file.file, config), static_cast<float>(file.scale)});
    }
  }
  return sets;
}

std::vector<std::vector<StepCut>> CutStep(std::span<const StepPart> parts,
                                          std::span<const int32_t> max_step_rows, int32_t room) {
  std::vector<std::vector<StepCut>> cuts(parts.size());
  std::vector<int32_t> done(parts.size(), 0);
  bool rest = true;
  while (rest) {
    rest = false;
    int32_t left = room;
    size_t pieces = 0;
    size_t last = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto total = static_cast<int32_t>(parts[i].positions.size());
      const int32_t count = std::min({left, total - done[i], max_step_rows[i]});
      if (count > 0) {
        cuts[i].push_back({parts[i].positions[static_cast<size_t>(done[i])], count});
        last = i;
        ++pieces;
        done[i] += count;
        left -= count;
      }
      rest = rest || done[i] < total;
    }
    if (pieces == 1) cuts[last].back().alone = true;
  }
  return cuts;
}

int32_t UndoableDrafts(const KvCache& cache, int32_t drafts) {
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    if (cache.attention_window(layer) > 0) return std::min(drafts, cache.max_step_rows());
  }
  return drafts;
}

std::string_view StepOutcomeName(StepOutcome outcome) {
  constexpr std::array<std::string_view, 6> kNames = {
      "done", "out of range", "invalid argument", "pool exhausted", "cancelled", "another error"};
  return kNames.at(static_cast<size_t>(outcome));
}

StepOutcome StepOutcomeOf(const std::function<void()>& call, std::string* what) {
  try {
    call();
    return StepOutcome::kDone;
  } catch (const Cancelled& error) {
    *what = error.what();
    return StepOutcome::kCancelled;
  } catch (const PoolExhausted& error) {
    *what = error.what();
    return StepOutcome::kExhausted;
  } catch (const std::out_of_range& error) {
    *what = error.what();
    return StepOutcome::kOutOfRange;
  } catch (const std::invalid_argument& error) {
    *what = error.what();
    return StepOutcome::kInvalid;
  } catch (const std::exception& error) {
    *what = error.what();
    return StepOutcome::kOther;
  }
}

void CancelPoint::Reach() {
  if (left_-- != 0) return;
  fired_ = true;
  throw Cancelled();
}

void WatchedCache::Update(int32_t layer, std::span<const int32_t> positions,
                          std::span<const float> keys, std::span<const float> values) {
  Reach();
  inner().Update(layer, positions, keys, values);
  writes_.push_back({layer, {positions.begin(), positions.end()}});
  Reach();
}

std::optional<KvSlot> WatchedCache::TryReserveSlot(int32_t layer,
                                                   std::span<const int32_t> positions) {
  Reach();
  std::optional<KvSlot> slot = inner().TryReserveSlot(layer, positions);
  Reach();
  return slot;
}

void WatchedCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  Reach();
  inner().CommitSlot(layer, positions);
  writes_.push_back({layer, {positions.begin(), positions.end()}});
  Reach();
}

DeviceKv* WatchedCache::device_kv(int32_t layer) {
  return inner().device_kv(layer) == nullptr ? nullptr : &on_device_;
}

std::optional<DeviceKvSlot> WatchedCache::OnDevice::TryReserveDeviceSlot(
    int32_t layer, std::span<const int32_t> positions, DeviceStream& stream) {
  watched_.Reach();
  auto slot = ForwardingDeviceKv::TryReserveDeviceSlot(layer, positions, stream);
  watched_.Reach();
  return slot;
}

void WatchedCache::OnDevice::CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                                              DeviceStream& stream) {
  watched_.Reach();
  ForwardingDeviceKv::CommitDeviceSlot(layer, positions, stream);
  watched_.writes_.push_back({layer, {positions.begin(), positions.end()}});
  watched_.Reach();
}

void WatchedCache::OnDevice::UpdateOnDevice(int32_t layer, std::span<const int32_t> positions,
                                            Global<const float> keys, Global<const float> values,
                                            DeviceStream& stream) {
  watched_.Reach();
  ForwardingDeviceKv::UpdateOnDevice(layer, positions, keys, values, stream);
  watched_.writes_.push_back({layer, {positions.begin(), positions.end()}});
  watched_.Reach();
}

DressedCache::DressedCache(KvCache& cache, int32_t path, CancelPoint* point)
    : path_(OnPath(cache, path)) {
  watched_ = std::make_unique<WatchedCache>(path_ ? *path_ : cache, point);
  if (point != nullptr) trace_ = std::make_unique<CancellingTrace>(point);
  counting_ = std::make_unique<CountingCache>(*watched_);
}

int32_t PathOn(int32_t layers, int32_t path) { return path < 2 ? path : 2 + (path - 2) % layers; }

PathCounts ExpectedCalls(std::span<const StepCut> pieces, const CallsRule& calls, int32_t layer) {
  constexpr int64_t kDeviceCalls = 3;  // reserve; commit or update; view
  PathCounts counts;
  const int32_t path = calls.path;
  const int32_t refused_first = path == 0 ? INT32_MAX : path == 1 ? 0 : path - 2;
  const bool refused = path == 1 || layer == refused_first;
  for (const StepCut& piece : pieces) {
    const bool direct = !refused && calls.rule.Direct(layer, piece.first, piece.count);
    ++(direct ? counts.granted : counts.refused);
    ++(direct ? counts.commits : counts.updates);
    if (layer < calls.rule.device_layers) counts.on_device += kDeviceCalls;
    const bool tried = calls.graphs && piece.alone && piece.count == 1;
    if (!tried || refused_first == INT32_MAX || layer > refused_first) continue;
    ++(layer < refused_first ? counts.granted : counts.refused);
    counts.on_device += layer < refused_first ? 2 : 1;  // reserve, and view
  }
  return counts;
}

}  // namespace lockstep
