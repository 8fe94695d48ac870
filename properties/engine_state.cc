#include "properties/engine_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>
#include <stdexcept>
#include <utility>

#include "caches/error.h"
#include "engine/synthetic.h"
#include "engine/thread_team.h"
#include "oracle/difference.h"

namespace lockstep {
namespace {

constexpr size_t kModelsKept = 32;

int32_t BlocksFor(int32_t rows, int32_t block_size) { return (rows + block_size - 1) / block_size; }

}  // namespace

std::shared_ptr<const EngineModel> EngineModelOf(const std::string& preset, int32_t seed) {
  static std::map<std::pair<std::string, int32_t>, std::shared_ptr<const EngineModel>> kept;
  auto& model = kept[{preset, seed}];
  if (model != nullptr) return model;
  ThreadTeam team(1);
  auto made = std::make_shared<EngineModel>();
  const SyntheticSpec& spec = SyntheticPreset(preset);
  made->model = Model::Load(MakeSyntheticModel(spec, static_cast<uint64_t>(seed)), {.team = &team});
  made->adapters = MakeAdapterSets(made->model->config());
  made->plain = std::make_unique<Transformer>(
      made->model, TransformerOptions{.kernels = &SelectKernels("scalar")});
  if (kept.size() > kModelsKept) kept.clear();
  kept[{preset, seed}] = made;
  return made;
}

EngineState::EngineState(const EngineScript& script, const EngineSubject& subject)
    : script_(script),
      subject_(subject),
      model_(EngineModelOf(script.model, script.seed)),
      geometry_(model_->model->config().geometry(script.max_length)) {
  std::vector<CacheSpec> specs;
  for (const std::string& name : script.caches) {
    specs.push_back(subject.spec ? *subject.spec : ParseCacheSpec(name));
  }
  const auto there = [](const CacheSpec& spec) { return spec.device_layers > 0; };
  if (!subject.make_cache && std::ranges::any_of(specs, there)) device_ = MakeScriptDevice(script);
  for (CacheSpec& spec : specs) {
    auto root = MakeCache(spec);
    kinds_.push_back({std::move(spec), std::move(root)});
  }
}

int32_t EngineState::DeviceLayersOf(std::span<const StepPart> parts) {
  int32_t layers = device_ == nullptr ? 0 : geometry_.num_layers;
  for (const StepPart& part : parts) {
    layers = std::min(layers, KindOf(At(part.sequence)).spec.device_layers);
  }
  return layers;
}

std::unique_ptr<KvCache> EngineState::MakeCache(const CacheSpec& spec) const {
  const auto refuse = [&](const std::string& why) {
    return Error({"engine script", fmt::format("no cache {} can be made of it: {}", spec.name, why),
                  "correct the first line"});
  };
  try {
    return subject_.make_cache ? subject_.make_cache(spec, geometry_, script_.blocks)
                               : MakeScriptCacheOn(device_, spec, geometry_, script_.blocks);
  } catch (const std::invalid_argument& error) {
    throw refuse(error.what());
  } catch (const std::bad_alloc&) {
    throw refuse("it does not fit memory");
  }
}

EngineSequence& EngineState::At(int32_t sequence) {
  std::optional<EngineSequence>& slot = Slot(sequence);
  if (slot) return *slot;
  const size_t kind = static_cast<size_t>(sequence) % kinds_.size();
  const CacheSpec& spec = kinds_[kind].spec;
  slot.emplace();
  slot->kind = kind;
  const std::vector<int32_t> windows = WindowsOf(spec, geometry_);
  slot->cache = subject_.forks ? kinds_[kind].root->Fork() : MakeCache(spec);
  slot->reference = std::make_unique<EngineReference>(
      *model_->plain, ModelCacheOptions{.geometry = geometry_,
                                        .key_type = spec.key_type,
                                        .value_type = spec.value_type,
                                        .window = spec.window,
                                        .window_type = spec.window_type,
                                        .refuses_host_slots = true,
                                        .max_step_rows = windows.empty() ? 0 : spec.undo_rows,
                                        .windows = windows});
  return *slot;
}

// New blocks, and copies of shared ones where some may be shared: which are is not visible.
BlockNeed EngineState::BlocksNeeded(std::span<const StepPart> parts) {
  BlockNeed need;
  for (const EngineKind& kind : kinds_) {
    const int32_t size = kind.spec.block_size;
    if (size == 0) continue;
    const std::optional<BlockCounts> blocks = BlockCountsOf(*kind.root);
    int32_t least = 0;
    int32_t most = 0;
    for (const StepPart& part : parts) {
      const EngineSequence& sequence = At(part.sequence);
      if (&kinds_[sequence.kind] != &kind) continue;
      const int32_t held = sequence.reference->length();
      const auto rows = static_cast<int32_t>(part.positions.size());
      const int32_t fresh = BlocksFor(held + rows, size) - BlocksFor(held, size);
      least += fresh;
      most += fresh + (kind.forked && held % size != 0 ? 1 : 0);
    }
    // A decorated pool tells nothing.
    if (!blocks) need.may_fail = need.may_fail || script_.blocks > 0;
    if (!blocks) continue;
    need.must_fail = need.must_fail || blocks->free_blocks < least;
    need.may_fail = need.may_fail || blocks->free_blocks < most;
  }
  return need;
}

void EngineState::Blame(std::string_view own, std::string_view others,
                        std::span<const int32_t> sequences) {
  own_clause_ = own;
  others_clause_ = others;
  own_.assign(sequences.begin(), sequences.end());
}

std::string_view EngineState::ClauseOf(int32_t sequence) const {
  return std::ranges::find(own_, sequence) != own_.end() ? own_clause_ : others_clause_;
}

void EngineState::Find(std::string_view clause, int32_t sequence, std::string what) {
  if (found()) return;
  run.finding = EngineFinding{op_, std::string(clause), sequence, std::move(what)};
}

void EngineState::FindDifference(int32_t sequence, Difference difference) {
  difference.step = op_ + 1;
  Find(ClauseOf(sequence), sequence,
       fmt::format("sequence {}, {}", sequence, difference.Sentence()));
}

void EngineState::Compare() {
  for (int32_t s = 0; s < kEngineSequences; ++s) CompareSequence(s);
  for (size_t i = 0; i < kinds_.size(); ++i) CompareBlocks(kinds_[i], i);
  ++run.counts.operations;
}

void EngineState::CompareSequence(int32_t s) {
  const std::optional<EngineSequence>& slot = Slot(s);
  if (!slot || found()) return;
  const KvCache& subject = *slot->cache;
  const EngineReference& reference = *slot->reference;
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    if (subject.length(layer) == reference.length()) continue;
    return Find(ClauseOf(s), s,
                fmt::format("sequence {}, layer {}: length {} against {}", s, layer,
                            subject.length(layer), reference.length()));
  }
  run.counts.rows_compared += int64_t{geometry_.num_layers} * reference.length();
  const Digest rows = DigestOfCache(subject);
  digest.AddU64(rows.high);
  digest.AddU64(rows.low);
  for (int32_t layer = 0; rows != reference.rows() && layer < geometry_.num_layers; ++layer) {
    std::optional<Difference> difference = FirstRowDifference(subject, reference.cache(), layer);
    if (!difference) continue;
    return FindDifference(s, *difference);
  }
  if (rows != reference.rows()) Find("X1", s, fmt::format("sequence {}: the hashes differ", s));
  if (!subject_.compares_storage || reference.has_window()) return;
  if (subject.StorageDigest() == reference.storage()) return;
  Find("X2", s, fmt::format("sequence {}: the stored bytes differ", s));
}

// [B3] Exactly, as long as no block can be shared; else at least what the longest sequence needs
// and at most what all do.
void EngineState::CompareBlocks(const EngineKind& kind, size_t index) {
  const std::optional<BlockCounts> blocks = BlockCountsOf(*kind.root);
  if (!blocks || found()) return;
  int32_t least = 0;
  int32_t most = 0;
  for (const auto& slot : sequences_) {
    if (!slot || slot->kind != index) continue;
    const int32_t needed = BlocksFor(slot->reference->length(), kind.spec.block_size);
    least = std::max(least, needed);
    most += needed;
  }
  if (!kind.forked) least = most;
  if (blocks->used_blocks >= least && blocks->used_blocks <= most) return;
  Find("B3", -1,
       fmt::format("{}: {} blocks in use, the rows need {}{}", kind.spec.name, blocks->used_blocks,
                   least, least == most ? "" : fmt::format(" to {}", most)));
}

void EngineState::CompareEnd() {
  for (int32_t s = 0; s < kEngineSequences && !found(); ++s) {
    if (!Slot(s)) continue;
    const std::optional<std::string> difference = Slot(s)->reference->CompareWhole();
    if (difference) {
      Find("Q3", s, fmt::format("sequence {}: one by one differs from whole: {}", s, *difference));
    }
  }
  for (auto& slot : sequences_) slot.reset();
  for (size_t i = 0; i < kinds_.size(); ++i) {
    CompareBlocks(kinds_[i], i);
    if (kinds_[i].root->current_length() != 0) {
      Find("B4", -1, fmt::format("{}: rows in a sequence nobody wrote to", kinds_[i].spec.name));
    }
  }
}

}  // namespace lockstep
