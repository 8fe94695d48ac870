#include "properties/prefix_campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "caches/paged_kv_cache.h"
#include "caches/random.h"
#include "oracle/difference.h"
#include "properties/engine_reference.h"
#include "properties/engine_state.h"
#include "properties/engine_step.h"

namespace lockstep {
namespace {

constexpr int32_t kPositions = 26;
constexpr size_t kSequences = 3;
constexpr size_t kStems = 3;
constexpr int32_t kEngines = 2;

struct Engine {
  std::shared_ptr<const EngineModel> model = nullptr;
  std::unique_ptr<Transformer> transformer = nullptr;
  std::unique_ptr<PrefixCache> prefixes = nullptr;
  std::unique_ptr<PrefixDriver> driver = nullptr;
};

struct Sequence {
  size_t engine = 0;
  int32_t adapters = 0;  // a set of MakeAdapterSets
  int32_t path = 0;      // EngineOpKind::kPath
  // Of its rows: the first `pure` are those of tokens that were fed under the set `first_set`.
  int32_t first_set = 0;
  int32_t pure = 0;
  bool switched = false;
  std::unique_ptr<PagedKvCache> cache;
  std::unique_ptr<EngineReference> reference;
};

std::unique_ptr<PagedKvCache> Forked(PagedKvCache& cache) {
  return std::unique_ptr<PagedKvCache>(static_cast<PagedKvCache*>(cache.Fork().release()));
}

class Campaign {
 public:
  Campaign(const PrefixCampaignOptions& options, const MakePrefixDriver& make_driver)
      : options_(options), random_(options.seed) {
    for (int32_t m = 0; m < kEngines; ++m) {
      engines_.push_back({.model = EngineModelOf(options.preset, 1 + m)});
    }
    geometry_ = engines_[0].model->model->config().geometry(kPositions);
    root_ = std::make_unique<PagedKvCache>(PagedKvCacheOptions{
        .geometry = geometry_,
        .block_size = options.block_size,
        .pool = std::make_shared<BlockPool>(BlockPoolOptions{.geometry = geometry_,
                                                             .block_size = options.block_size,
                                                             .num_blocks = options.blocks,
                                                             .shuffle_seed = options.seed,
                                                             .poison_on_free = true})});
    index_ = std::make_unique<PrefixIndex>(*root_, options.hash_bits);
    for (Engine& engine : engines_) {
      engine.transformer = std::make_unique<Transformer>(
          engine.model->model,
          TransformerOptions{.max_step_tokens = random_.Between(3, 9), .threads = options.threads});
      engine.prefixes = std::make_unique<PrefixCache>(*engine.transformer, *index_);
      engine.driver = make_driver ? make_driver(*engine.prefixes)
                                  : std::make_unique<PrefixDriver>(*engine.prefixes);
    }
    MakeStems();
  }

  PrefixRun Run() {
    for (op_ = 0; op_ < options_.operations && !run_.finding; ++op_) {
      Operate();
      Check();
    }
    run_.counters = index_->counters();
    run_.digest = digest_.Finish();
    return std::move(run_);
  }

 private:
  void Count(PrefixClass c) { ++run_.counts[static_cast<size_t>(c)]; }

  void Find(std::string_view clause, std::string what) {
    if (!run_.finding) run_.finding = {op_, std::string(clause), std::move(what)};
  }

  bool OneIn(uint32_t count) { return random_.Below(count) == 0; }

  // ---- Texts ------------------------------------------------------------------------------

  int32_t vocabulary() const { return engines_[0].model->model->config().vocab_size; }
  int32_t AnyToken() {
    return static_cast<int32_t>(random_.Below(static_cast<uint32_t>(vocabulary())));
  }

  // The second one goes away from the first in the middle, the third in one bit above the low 8.
  void MakeStems() {
    for (std::vector<int32_t>& stem : stems_) {
      for (int32_t i = 0; i < kPositions; ++i) stem.push_back(AnyToken());
    }
    std::copy_n(stems_[0].begin(), 7, stems_[1].begin());
    stems_[2] = stems_[0];
    stems_[2][1] = (stems_[2][1] + 256) % vocabulary();
  }

  std::vector<int32_t> AnyText() {
    const auto& stem = stems_[random_.Below(kStems)];
    const int32_t size = random_.Between(1, kPositions - 3);
    std::vector<int32_t> text(stem.begin(), stem.begin() + size);
    const int32_t own = OneIn(2) ? 0 : random_.Between(0, std::min(3, size - 1));
    for (int32_t i = size - own; i < size; ++i) text[static_cast<size_t>(i)] = AnyToken();
    return text;
  }

  // ---- Operations -------------------------------------------------------------------------

  void Operate() {
    std::optional<Sequence>& slot = sequences_[random_.Below(kSequences)];
    const uint32_t pick = random_.Below(20);
    if (!slot || pick < 8) return Prompt(&slot);
    if (pick < 11) return Decode(&*slot);
    if (pick < 14) return Rollback(&*slot);
    if (pick < 16) return Fork(&*slot);
    if (pick < 18) return Adapt(&*slot);
    if (pick == 18) return slot.reset();
    if (OneIn(4)) return index_->Clear();
    slot->path = PathOn(geometry_.num_layers, random_.Between(0, 3));
  }

  void Prompt(std::optional<Sequence>* slot) {
    slot->reset();
    Sequence& sequence = slot->emplace();
    sequence.engine = random_.Below(kEngines);
    sequence.adapters = OneIn(2) ? 0 : random_.Between(0, kAdapterSets - 1);
    sequence.first_set = sequence.adapters;
    sequence.path = OneIn(3) ? 1 : 0;
    sequence.cache = Forked(*root_);
    sequence.reference = std::make_unique<EngineReference>(
        *engine(sequence).model->plain,
        ModelCacheOptions{.geometry = geometry_, .refuses_host_slots = true});
    const std::vector<int32_t> text = AnyText();
    const int32_t attached =
        engine(sequence).driver->Attach(text, AdaptersOf(sequence), sequence.cache.get());
    if (attached < 0 || attached >= std::ssize(text) ||
        attached != sequence.cache->current_length()) {
      return Find("P3", fmt::format("{} rows of {} tokens attached, the cache has {}", attached,
                                    text.size(), sequence.cache->current_length()));
    }
    sequence.reference->Append(std::span(text).first(static_cast<size_t>(attached)),
                               AdaptersOf(sequence));
    sequence.pure = attached;
    if (attached > 0) CountHit(sequence);
    CountOtherModel(sequence, text);
    Feed(&sequence, std::span(text).subspan(static_cast<size_t>(attached)), attached > 0);
  }

  void CountHit(const Sequence& sequence) {
    Count(PrefixClass::kHit);
    if (sequence.adapters != 0) Count(PrefixClass::kHitUnderAdapters);
    if (index_->counters().evicted > 0) Count(PrefixClass::kHitAfterEviction);
  }

  // The other model has a sequence that begins with the same block, under the same adapters.
  void CountOtherModel(const Sequence& sequence, std::span<const int32_t> text) {
    const auto size = static_cast<size_t>(options_.block_size);
    for (const auto& other : sequences_) {
      if (!other || other->engine == sequence.engine || text.size() <= size) continue;
      const auto tokens = other->reference->tokens();
      if (other->pure >= options_.block_size && other->first_set == sequence.first_set &&
          std::ranges::equal(tokens.first(size), text.first(size))) {
        Count(PrefixClass::kOtherModelSameTokens);
      }
    }
  }

  void Decode(Sequence* sequence) {
    const int32_t length = sequence->reference->length();
    const int32_t count = std::min(random_.Between(1, 4), kPositions - length);
    std::vector<int32_t> tokens;
    // On along a stem, so that others come the same way; or elsewhere.
    const auto& stem = stems_[random_.Below(kStems)];
    for (int32_t i = 0; i < count; ++i) {
      tokens.push_back(OneIn(6) ? AnyToken() : stem[static_cast<size_t>(length + i)]);
    }
    if (count > 0) Feed(sequence, tokens, false);
  }

  void Rollback(Sequence* sequence) {
    const int32_t length = sequence->reference->length();
    const int32_t to = random_.Between(0, length);
    const auto held = index_->blocks();
    const auto table = sequence->cache->block_table();
    const auto last = static_cast<size_t>(to / options_.block_size);
    if (to % options_.block_size != 0 && std::ranges::binary_search(held, table[last])) {
      Count(PrefixClass::kRolledBackIntoShared);
    }
    sequence->cache->Rollback(to);
    sequence->reference->Rollback(to);
    sequence->pure = std::min(sequence->pure, to);
    if (to > 0) return;
    sequence->first_set = sequence->adapters;
    sequence->switched = false;
  }

  void Fork(Sequence* source) {
    std::optional<Sequence>& target = sequences_[random_.Below(kSequences)];
    if (target && &*target == source) return;
    Sequence fork = {.engine = source->engine,
                     .adapters = source->adapters,
                     .path = source->path,
                     .first_set = source->first_set,
                     .pure = source->pure,
                     .switched = source->switched,
                     .cache = Forked(*source->cache),
                     .reference = std::make_unique<EngineReference>(*source->reference)};
    target = std::move(fork);
    Count(PrefixClass::kForked);
  }

  void Adapt(Sequence* sequence) {
    sequence->adapters = random_.Between(0, kAdapterSets - 1);
    if (sequence->reference->length() == 0) sequence->first_set = sequence->adapters;
  }

  // ---- Steps ------------------------------------------------------------------------------

  Engine& engine(const Sequence& sequence) { return engines_[sequence.engine]; }
  std::span<const AppliedAdapter> SetOf(const Sequence& sequence, int32_t set) {
    return engine(sequence).model->adapters[static_cast<size_t>(set)];
  }
  std::span<const AppliedAdapter> AdaptersOf(const Sequence& sequence) {
    return SetOf(sequence, sequence.adapters);
  }

  // One step, compared, and registered if it was done.
  void Feed(Sequence* sequence, std::span<const int32_t> tokens, bool behind_a_hit) {
    const int32_t length = sequence->reference->length();
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), length);
    const bool cancels = OneIn(6);
    CancelPoint point(random_.Between(0, 20 * geometry_.num_layers));
    DressedCache dress(*sequence->cache, sequence->path, cancels ? &point : nullptr);
    const BatchSequence step = {tokens, positions, &dress.cache(), dress.trace(),
                                AdaptersOf(*sequence)};
    const BlockPool& pool = root_->pool();
    const int32_t available = pool.free_blocks() + pool.reclaimable_blocks();
    const int32_t fresh =
        BlocksForRows(length + static_cast<int32_t>(tokens.size()), options_.block_size) -
        BlocksForRows(length, options_.block_size);
    std::span<const float> logits;
    std::string thrown;
    const StepOutcome outcome = StepOutcomeOf(
        [&] {
          logits = engine(*sequence).transformer->ForwardBatch({&step, 1});
        },
        &thrown);
    if (outcome == StepOutcome::kCancelled && point.fired()) {
      return Count(behind_a_hit ? PrefixClass::kCancelledBehindAHit : PrefixClass::kCancelled);
    }
    if (outcome == StepOutcome::kExhausted) {
      // One more than it needs: it may have to copy the block that its first row goes into.
      if (available <= fresh) return Count(PrefixClass::kExhausted);
      return Find("P6", fmt::format("a step of {} blocks found too few, {} are free or reclaimable",
                                    fresh, available));
    }
    if (outcome != StepOutcome::kDone || available < fresh) {
      return Find("P6", fmt::format("a step ended with {} {}", StepOutcomeName(outcome), thrown));
    }
    sequence->reference->Append(tokens, AdaptersOf(*sequence));
    if (FirstFloatDifference(logits, sequence->reference->logits()) >= 0) {
      return Find("P2", "the logits of a step differ");
    }
    digest_.AddFloats(logits);
    Register(sequence);
  }

  void Register(Sequence* sequence) {
    if (sequence->adapters != sequence->first_set && !sequence->switched) {
      sequence->switched = true;
      Count(PrefixClass::kAdaptersSwitched);
    }
    if (!sequence->switched) sequence->pure = sequence->reference->length();
    const auto pure = static_cast<size_t>(sequence->pure);
    engine(*sequence).driver->Register(sequence->reference->tokens().first(pure),
                                       SetOf(*sequence, sequence->first_set), *sequence->cache);
    const auto table = sequence->cache->block_table();
    for (size_t i = 0; i < pure / static_cast<size_t>(options_.block_size); ++i) {
      known_[table[i]] = DigestOfBlock(table[i]);
    }
  }

  // ---- After each operation ---------------------------------------------------------------

  Digest DigestOfBlock(int32_t block) const {
    DigestBuilder builder;
    const auto elements = static_cast<size_t>(options_.block_size * geometry_.kv_stride());
    for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
      builder.AddFloats({root_->pool().keys(block, layer), elements});
      builder.AddFloats({root_->pool().values(block, layer), elements});
    }
    return builder.Finish();
  }

  void Check() {
    std::vector<const PagedKvCache*> caches = {root_.get()};
    for (size_t s = 0; s < kSequences; ++s) {
      if (!sequences_[s]) continue;
      const PagedKvCache& cache = *sequences_[s]->cache;
      caches.push_back(&cache);
      const Digest rows = DigestOfCache(cache);
      digest_.AddU64(rows.low);
      if (rows != sequences_[s]->reference->rows()) CompareRows(s);
    }
    for (const std::string& fault : AuditBlocks(root_->pool(), caches, index_->blocks())) {
      Find("P5", fault);
    }
    const auto held = index_->blocks();
    std::erase_if(
        known_, [&](const auto& entry) { return !std::ranges::binary_search(held, entry.first); });
    for (const int32_t block : held) {
      const auto found = known_.find(block);
      if (found == known_.end()) {
        Find("P7", fmt::format("block {} was registered by nobody", block));
      } else if (found->second != DigestOfBlock(block)) {
        Find("P4", fmt::format("the rows of registered block {} have changed", block));
      }
    }
  }

  void CompareRows(size_t s) {
    const Sequence& sequence = *sequences_[s];
    for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
      const auto difference =
          FirstRowDifference(*sequence.cache, sequence.reference->cache(), layer);
      if (difference) {
        return Find("P2", fmt::format("sequence {}, {}", s, difference->Sentence()));
      }
    }
    Find("X1", fmt::format("sequence {}: the hashes differ", s));
  }

  const PrefixCampaignOptions& options_;
  Random random_;
  KvGeometry geometry_;
  std::vector<Engine> engines_;
  std::unique_ptr<PagedKvCache> root_;
  std::unique_ptr<PrefixIndex> index_;
  std::array<std::vector<int32_t>, kStems> stems_;
  std::array<std::optional<Sequence>, kSequences> sequences_;
  std::map<int32_t, Digest> known_;  // by registered block, its rows then
  int32_t op_ = 0;
  PrefixRun run_;
  DigestBuilder digest_;
};

}  // namespace

PrefixRun RunPrefixCampaign(const PrefixCampaignOptions& options,
                            const MakePrefixDriver& make_driver) {
  return Campaign(options, make_driver).Run();
}

}  // namespace lockstep
