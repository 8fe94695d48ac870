#include "golden/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "caches/check.h"
#include "properties/engine_step.h"

namespace lockstep {
namespace {

// Rows of an attention's view that are tried one by one.
constexpr int64_t kRowsTried = 96;

std::vector<double> AsDoubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

}  // namespace

// Collects the candidates of one stage.
class MistakeMaker::Maker {
 public:
  Maker(const MistakeMaker& owner, const MistakeInputs& inputs) : owner_(owner), inputs_(inputs) {}

  std::vector<CauseCandidate> Make() {
    switch (inputs_.stage.stage) {
      case Stage::kAttnNorm:
      case Stage::kFfnNorm:
      case Stage::kFinalNorm:
        Norm();
        break;
      case Stage::kQuery:
      case Stage::kKey:
      case Stage::kValue:
        Projection();
        break;
      case Stage::kQueryRope:
      case Stage::kKeyRope:
        Rope();
        break;
      case Stage::kAttention:
        Attention();
        break;
      case Stage::kAttnOut:
      case Stage::kFfnOut:
        Sum();
        Adapters();
        break;
      case Stage::kFfnHidden:
        Fault(Cause::kGateUpSwapped, "gate and up exchanged", ReferenceFault::kGateUpSwapped);
        Adapters();
        Codes();
        break;
      case Stage::kFfnRouter:
      case Stage::kLogits:
        Codes();
        break;
      default:
        break;
    }
    return std::move(candidates_);
  }

 private:
  const ModelConfig& config() const { return owner_.model_->config(); }

  void Add(Cause cause, std::string says, const MistakeInputs& inputs,
           ReferenceOptions options = {}) {
    ReferenceRows rows = owner_.Compute(inputs, options);
    candidates_.push_back({cause, std::move(says), std::move(rows.values), std::move(rows.bounds)});
  }

  void Fault(Cause cause, std::string says, ReferenceFault fault) {
    Add(cause, std::move(says), inputs_, {.fault = fault});
  }

  void Bits(Cause cause, std::string says, std::span<const float> rows) {
    candidates_.push_back({cause, std::move(says), AsDoubles(rows)});
  }

  void Norm() {
    Fault(Cause::kMissingNormWeight, "the norm without its weight", ReferenceFault::kNoNormWeight);
    Fault(Cause::kWrongEpsilon, "the norm with epsilon outside the root",
          ReferenceFault::kEpsOutside);
    Bits(Cause::kMissingNorm, "the rows before the norm", inputs_.stage.input);
  }

  // Activations that meet quantized weights.
  void Codes() {
    Fault(Cause::kQuantization, "activations rounded towards zero",
          ReferenceFault::kTruncatedCodes);
    Add(Cause::kQuantization, "activations that are not rounded to codes", inputs_,
        {.quantize_activations = false});
  }

  // What adapters add, left out, or what those of another sequence or step add.
  void Adapters() {
    for (int32_t set = 0; set < kAdapterSets; ++set) {
      if (set == inputs_.adapters) continue;
      MistakeInputs other = inputs_;
      other.adapters = set;
      Add(Cause::kAdapters,
          set == 0 ? "the product without its adapters"
                   : fmt::format("the product with set {} of adapters", set),
          other);
    }
  }

  void Projection() {
    Fault(Cause::kMissingBias, "the projection without its bias", ReferenceFault::kNoBias);
    Adapters();
    MistakeInputs other = inputs_;
    if (inputs_.stage.stage != Stage::kQuery) {
      const bool key = inputs_.stage.stage == Stage::kKey;
      other.stage.stage = key ? Stage::kValue : Stage::kKey;
      Add(Cause::kKvSwapped, key ? "V of the same row" : "K of the same row", other);
    }
    Codes();
  }

  void Rope() {
    const bool lost = inputs_.rotated_before && inputs_.stage.stage == Stage::kQueryRope &&
                      inputs_.stage.positions.size() == 1;
    if (!lost) {
      Bits(Cause::kNotRotated, "the rows before RoPE", inputs_.stage.input);
      AddAt(Cause::kNotRotated, "RoPE at position 0", [](int32_t, int32_t) { return 0; });
    }
    Fault(Cause::kRopePairing, "RoPE of pairs half a head apart", ReferenceFault::kRopeHalves);
    Fault(Cause::kMissingNorm, "RoPE without QK-norm", ReferenceFault::kNoHeadNorm);
    const int32_t most = *std::ranges::max_element(inputs_.stage.positions);
    const int32_t first = inputs_.stage.positions.front();
    // Only the table's angles are asked for, so positions past the context are as good.
    for (int32_t k = 1; k <= most + 8; ++k) {
      AddAt(Cause::kWrongPosition, fmt::format("RoPE {} positions further", k),
            [&](int32_t p, int32_t) { return p + k; });
      if (k > most) continue;
      AddAt(Cause::kWrongPosition, fmt::format("RoPE {} positions before", k),
            [&](int32_t p, int32_t) { return std::max(0, p - k); });
    }
    AddAt(Cause::kWrongPosition, "RoPE at the row's place in the step",
          [](int32_t, int32_t row) { return row; });
    AddAt(Cause::kWrongPosition, "RoPE at the position of the step's first row",
          [&](int32_t, int32_t) { return first; });
    AddAt(Cause::kRotatedTwice, "RoPE at twice the position",
          [](int32_t p, int32_t) { return 2 * p; });
  }

  template <typename PositionOf>
  void AddAt(Cause cause, std::string says, PositionOf&& position_of) {
    std::vector<int32_t> moved;
    for (int32_t position : inputs_.stage.positions) {
      moved.push_back(position_of(position, static_cast<int32_t>(moved.size())));
    }
    MistakeInputs other = inputs_;
    other.stage.positions = moved;
    Add(cause, std::move(says), other);
  }

  void Sum() {
    const std::vector<float> zeros(inputs_.stage.stream.size());
    MistakeInputs other = inputs_;
    other.stage.stream = zeros;
    Add(Cause::kMissingResidual, "the product without the stream", other);
    Codes();
  }

  // ---- Attention --------------------------------------------------------------------------

  void Attention() {
    Fault(Cause::kWrongScale,
          "attention over scores that are not divided by the root of the head "
          "dimension",
          ReferenceFault::kNoScale);
    Masks();
    Heads();
    Sides();
    RowsInPlaceOfOthers();
  }

  void AddVisible(std::string says, const std::vector<int32_t>& visible) {
    MistakeInputs other = inputs_;
    other.visible = visible;
    for (size_t i = 0; i < visible.size(); ++i) {
      const KvRows& view = other.views[other.views.size() == 1 ? 0 : i];
      if (visible[i] < 1 || visible[i] * Stride() > std::ssize(view.keys)) return;
    }
    Add(Cause::kMask, std::move(says), other);
  }

  void Masks() {
    const std::vector<int32_t>& right = inputs_.visible;
    const auto changed = [&](auto&& change) {
      std::vector<int32_t> visible;
      for (int32_t rows : right) visible.push_back(change(rows));
      return visible;
    };
    const int32_t first = right.front() - 1;
    const int32_t most = *std::ranges::max_element(right);
    AddVisible("attention that does not see the query's own row",
               changed([](int32_t v) { return std::max(1, v - 1); }));
    AddVisible("attention that sees one row more, where there is one",
               changed([&](int32_t v) { return std::min(v + 1, most); }));
    AddVisible("attention over the whole chunk", changed([&](int32_t) { return most; }));
    AddVisible("attention over as many rows as the step has",
               changed([&](int32_t v) { return v - first; }));
    AddVisible("attention over the rows before the step",
               changed([&](int32_t) { return std::max(1, first); }));
    AddVisible("attention over the first row alone", changed([](int32_t) { return 1; }));
    if (config().window_of(inputs_.stage.layer) == 0) return;
    Fault(Cause::kMask, "attention over all rows, without the window", ReferenceFault::kNoWindow);
    Fault(Cause::kMask, "attention over a window and one row", ReferenceFault::kWindowWithoutSelf);
  }

  int64_t Stride() const { return config().kv_dim(); }

  // Changes each row of each view.
  template <typename Change>
  MistakeInputs WithViews(Change&& change) const {
    MistakeInputs other = inputs_;
    for (KvRows& view : other.views) change(&view);
    return other;
  }

  void Heads() {
    if (config().num_kv_heads == 1) return;
    Fault(Cause::kHeadMapping, "attention of head h to KV head h modulo their number",
          ReferenceFault::kHeadModulo);
    const int64_t d = config().head_dim;
    for (int64_t head = 0; head < config().num_kv_heads; ++head) {
      Add(Cause::kHeadMapping, fmt::format("attention to KV head {}", head),
          WithViews([&](KvRows* view) {
            for (std::vector<float>* side : {&view->keys, &view->values}) {
              const std::vector<float> copy = *side;
              for (int64_t i = 0; i < std::ssize(copy); ++i) {
                (*side)[static_cast<size_t>(i)] =
                    copy[static_cast<size_t>(i / Stride() * Stride() + head * d + i % d)];
              }
            }
          }));
    }
  }

  void Sides() {
    Add(Cause::kKvSwapped, "attention with K and V exchanged",
        WithViews([](KvRows* view) { std::swap(view->keys, view->values); }));
    Add(Cause::kKvSwapped, "attention with K in place of V",
        WithViews([](KvRows* view) { view->values = view->keys; }));
    Add(Cause::kKvSwapped, "attention with V in place of K",
        WithViews([](KvRows* view) { view->keys = view->values; }));
  }

  // One row of every view that is not what it should be.
  void RowsInPlaceOfOthers() {
    const int64_t rows = std::ssize(inputs_.views.front().keys) / Stride();
    const auto both = [&](int64_t row, int64_t from) {
      return WithViews([&](KvRows* view) {
        for (std::vector<float>* side : {&view->keys, &view->values}) {
          if ((row + 1) * Stride() > std::ssize(*side)) continue;
          const auto to = side->begin() + row * Stride();
          if (from < 0) std::fill_n(to, Stride(), 0.0f);
          if (from >= 0) std::copy_n(side->begin() + from * Stride(), Stride(), to);
        }
      });
    };
    for (int64_t row = std::max<int64_t>(0, rows - kRowsTried); row < rows; ++row) {
      Add(Cause::kUnwritten, fmt::format("attention with zeros at position {}", row),
          both(row, -1));
      if (row == 0) continue;
      Add(Cause::kShiftedRow,
          fmt::format("attention with the row of position {} at position {}", row - 1, row),
          both(row, row - 1));
      Add(Cause::kShiftedRow,
          fmt::format("attention with the row of position {} at position {}", row, row - 1),
          both(row - 1, row));
    }
  }

  const MistakeMaker& owner_;
  const MistakeInputs& inputs_;
  std::vector<CauseCandidate> candidates_;
};

MistakeMaker::MistakeMaker(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
MistakeMaker::~MistakeMaker() = default;

const ReferenceTransformer& MistakeMaker::With(ReferenceOptions options, int32_t adapters) const {
  auto& reference = references_[{adapters, options.quantize_activations, options.fault}];
  if (!reference) {
    options.adapters = AdapterFiles(model_->config(), adapters);
    // The file belongs to the model, which outlives the reference.
    const std::shared_ptr<const GgufFile> file(model_, &model_->file());
    reference = std::make_unique<ReferenceTransformer>(file, options);
  }
  return *reference;
}

// Queries that read views of their own are computed one by one.
ReferenceRows MistakeMaker::Compute(const MistakeInputs& inputs, ReferenceOptions options) const {
  const ReferenceTransformer& reference = With(std::move(options), inputs.adapters);
  StageInputs stage = inputs.stage;
  if (stage.stage != Stage::kAttention) return reference.Expected(stage);
  const size_t queries = inputs.visible.size();
  LS_CHECK(queries > 0 && (inputs.views.size() == 1 || inputs.views.size() == queries),
           "{} views of {} queries", inputs.views.size(), queries);
  const size_t width = stage.input.size() / queries;
  ReferenceRows all;
  all.layer = stage.layer;
  all.stage = stage.stage;
  for (size_t i = 0; i < queries; ++i) {
    const KvRows& view = inputs.views[inputs.views.size() == 1 ? 0 : i];
    stage.visible = std::span(inputs.visible).subspan(i, 1);
    stage.input = inputs.stage.input.subspan(i * width, width);
    stage.keys = view.keys;
    stage.values = view.values;
    const ReferenceRows row = reference.Expected(stage);
    all.width = row.width;
    all.values.insert(all.values.end(), row.values.begin(), row.values.end());
    all.bounds.insert(all.bounds.end(), row.bounds.begin(), row.bounds.end());
  }
  return all;
}

ReferenceRows MistakeMaker::Expected(const MistakeInputs& inputs) const {
  return Compute(inputs, {});
}

std::vector<CauseCandidate> MistakeMaker::Mistakes(const MistakeInputs& inputs) const {
  return Maker(*this, inputs).Make();
}

}  // namespace lockstep
