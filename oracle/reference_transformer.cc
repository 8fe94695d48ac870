#include "oracle/reference_transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "caches/check.h"
#include "oracle/reference/adapters.h"
#include "oracle/reference/experts.h"
#include "oracle/reference/ops.h"
#include "oracle/reference/weights.h"

namespace lockstep {

using oracle::Rows;

struct ReferenceTransformer::Impl {
  // Sees each stage as it was computed and says what the later stages are computed from.
  using Hook = std::function<Rows(int64_t layer, Stage stage, Rows rows)>;

  oracle::Weights weights;
  ReferenceOptions options;

  bool Has(ReferenceFault fault) const { return options.fault == fault; }

  oracle::Codes Codes() const {
    if (!options.quantize_activations) return oracle::Codes::kNone;
    return Has(ReferenceFault::kTruncatedCodes) ? oracle::Codes::kTruncated
                                                : oracle::Codes::kNearest;
  }

  Rows MatMul(const oracle::Matrix& w, const Rows& x) const { return Project(w, {}, x); }

  Rows Project(const oracle::Matrix& w, const std::vector<double>& bias, const Rows& x) const {
    Rows y = oracle::MatMul(w, x, Codes());
    if (!Has(ReferenceFault::kNoBias)) oracle::AddBias(bias, &y);
    if (!Has(ReferenceFault::kNoAdapters)) oracle::AddChanges(w, x, &y);
    return y;
  }

  Rows Norm(const Rows& x, const std::vector<double>& weight) const {
    const std::vector<double> ones(weight.size(), 1.0);
    const auto& used = Has(ReferenceFault::kNoNormWeight) ? ones : weight;
    if (!Has(ReferenceFault::kEpsOutside)) return oracle::RmsNorm(x, used, weights.hp.eps);
    return oracle::RmsNormEpsOutside(x, used, weights.hp.eps);
  }

  Rows Rotate(int64_t layer, Rows x, const std::vector<double>& head_norm,
              std::vector<int64_t> positions) const {
    if (!head_norm.empty() && !Has(ReferenceFault::kNoHeadNorm))
      x = oracle::RmsNorm(x, head_norm, weights.hp.eps);
    else
      x = oracle::Exact(std::move(x));
    if (Has(ReferenceFault::kRopeNextPosition)) {
      for (int64_t& position : positions) ++position;
    }
    const oracle::Hyperparameters& hp = weights.hp;
    const bool rotates = hp.no_rope_interval == 0 || (layer + 1) % hp.no_rope_interval != 0;
    if (!rotates && !Has(ReferenceFault::kRopeEveryLayer)) return x;
    oracle::RopeShape shape =
        oracle::RopeShapeOf(hp, IsLocal(layer) && !Has(ReferenceFault::kOneRopeBase));
    if (Has(ReferenceFault::kRopeHalves)) shape.halves = !shape.halves;
    if (Has(ReferenceFault::kRopeUnscaled)) {
      shape = {.head_dim = shape.head_dim,
               .rope_dim = shape.rope_dim,
               .theta = shape.theta,
               .halves = shape.halves};
    }
    if (Has(ReferenceFault::kRopeWholeHead) && shape.rope_dim != hp.head_dim) {
      shape.rope_dim = hp.head_dim;
      shape.factors.clear();
    }
    if (Has(ReferenceFault::kRopeUnstretched)) shape.stretch = 1;
    return oracle::Rope(x, positions, shape);
  }

  // A scale of the family, 1 where the mistake is to forget them.
  double ScaleOf(double scale) const { return Has(ReferenceFault::kNoMultipliers) ? 1.0 : scale; }

  bool IsLocal(int64_t layer) const {
    const int64_t interval = weights.hp.global_interval;
    return interval == 0 || (layer + 1) % interval != 0;
  }

  int64_t WindowOf(int64_t layer) const {
    const int64_t window = weights.hp.window;
    if (Has(ReferenceFault::kNoWindow) || window == 0) return 0;
    if (!IsLocal(layer) && !Has(ReferenceFault::kLocalEveryLayer)) return 0;
    return Has(ReferenceFault::kWindowWithoutSelf) ? window + 1 : window;
  }

  oracle::AttentionInput AttentionShape(int64_t layer) const {
    const oracle::Hyperparameters& hp = weights.hp;
    oracle::AttentionInput input;
    input.heads = hp.heads;
    input.kv_heads = hp.kv_heads;
    input.head_dim = hp.head_dim;
    input.scale = hp.attention_scale != 0 && !Has(ReferenceFault::kNoMultipliers)
                      ? hp.attention_scale
                      : 1.0 / std::sqrt(static_cast<double>(hp.head_dim));
    if (Has(ReferenceFault::kNoScale)) input.scale = 1.0;
    input.window = WindowOf(layer);
    if (!Has(ReferenceFault::kNoSoftCap)) input.cap = hp.attention_cap;
    input.head_modulo = Has(ReferenceFault::kHeadModulo);
    return input;
  }

  Rows Attend(int64_t layer, const Rows& q, const Rows& k, const Rows& v,
              std::span<const int64_t> positions) const {
    oracle::AttentionInput input = AttentionShape(layer);
    for (int64_t position : positions) {
      int64_t visible = position + 1;
      if (Has(ReferenceFault::kMaskSelf)) visible = std::max<int64_t>(1, visible - 1);
      if (Has(ReferenceFault::kFutureVisible)) {
        visible = std::min(visible + 1, positions.back() + 1);
      }
      input.visible.push_back(visible);
    }
    return oracle::Attention(input, q, oracle::ByPosition(k, positions),
                             oracle::ByPosition(v, positions));
  }

  Rows Embed(std::span<const int32_t> tokens) const {
    Rows x(static_cast<int64_t>(tokens.size()), weights.hp.dim);
    std::vector<double> row;
    for (size_t t = 0; t < tokens.size(); ++t) {
      weights.embedding.Row(tokens[t], &row);
      std::ranges::copy(row, x.row(static_cast<int64_t>(t)));
    }
    return oracle::Scaled(ScaleOf(weights.hp.embedding_scale), std::move(x));
  }

  Rows AttentionBlock(int64_t layer, const Rows& x, const std::vector<int64_t>& positions,
                      const Hook& hook) const {
    const oracle::LayerTensors& w = weights.layers[static_cast<size_t>(layer)];
    const Rows normed = hook(layer, Stage::kAttnNorm, Norm(x, w.attn_norm));
    const Rows q = hook(layer, Stage::kQuery, Project(w.q, w.q_bias, normed));
    const Rows k = hook(layer, Stage::kKey, Project(w.k, w.k_bias, normed));
    const Rows v = hook(layer, Stage::kValue, Project(w.v, w.v_bias, normed));
    const Rows rotated_q = hook(layer, Stage::kQueryRope, Rotate(layer, q, w.q_norm, positions));
    const Rows rotated_k =
        hook(layer, Stage::kKeyRope,
             Has(ReferenceFault::kRopeUnrotatedKey) ? k : Rotate(layer, k, w.k_norm, positions));
    const Rows cache_k = hook(layer, Stage::kCacheKey, oracle::Exact(rotated_k));
    const Rows cache_v = hook(layer, Stage::kCacheValue, oracle::Exact(v));
    const Rows attention =
        hook(layer, Stage::kAttention, Attend(layer, rotated_q, cache_k, cache_v, positions));
    return hook(layer, Stage::kAttnOut, AttnSum(w, x, attention));
  }

  Rows Gate(const oracle::LayerTensors& w, const Rows& normed) const {
    const bool swapped = Has(ReferenceFault::kGateUpSwapped);
    const Rows gate = MatMul(swapped ? w.up : w.gate, normed);
    const Rows up = MatMul(swapped ? w.gate : w.up, normed);
    const bool gelu = weights.hp.gemma != Has(ReferenceFault::kOtherActivation);
    return gelu ? oracle::GeGlu(gate, up) : oracle::SwiGlu(gate, up);
  }

  // What a sublayer adds to the residual stream: its product, normed where the family does so.
  Rows Add(Rows y, const std::vector<double>& norm) const {
    y = oracle::Scaled(ScaleOf(weights.hp.residual_scale), std::move(y));
    if (norm.empty() || Has(ReferenceFault::kNoPostNorm)) return y;
    return oracle::RmsNormOf(y, norm, weights.hp.eps);
  }

  Rows AttnSum(const oracle::LayerTensors& w, const Rows& x, const Rows& attention) const {
    return oracle::Residual(x, Add(MatMul(w.out, attention), w.post_attn_norm));
  }

  Rows LogitsOf(const Rows& normed) const {
    const double cap = Has(ReferenceFault::kNoSoftCap) ? 0 : weights.hp.logit_cap;
    return oracle::Capped(
        cap, oracle::Scaled(1 / ScaleOf(weights.hp.logit_scale), MatMul(weights.head, normed)));
  }

  Rows FfnSum(const oracle::LayerTensors& w, const Rows& x, const Rows& hidden) const {
    Rows down = Add(MatMul(w.down, hidden), w.post_ffn_norm);
    return Has(ReferenceFault::kNoResidual) ? down : oracle::Residual(x, down);
  }

  oracle::MoeShape ExpertShape() const {
    const oracle::Hyperparameters& hp = weights.hp;
    return {.experts = hp.experts,
            .used = hp.experts_used,
            .expert_dim = hp.expert_dim,
            .shared_dim = hp.shared_dim,
            .normalize = hp.normalize_experts != Has(ReferenceFault::kOtherExpertNorm),
            .next_best = Has(ReferenceFault::kNextBestExperts),
            .leave_shared = Has(ReferenceFault::kNoSharedExpert),
            .swap_gate = Has(ReferenceFault::kGateUpSwapped),
            .codes = Codes()};
  }

  Rows ExpertOut(const oracle::LayerTensors& w, const Rows& x, const Rows& router,
                 const Rows& hidden) const {
    const Rows sum = oracle::ExpertSum(ExpertShape(), w, router, hidden);
    return Has(ReferenceFault::kNoResidual) ? sum : oracle::Residual(x, sum);
  }

  Rows FfnBlock(int64_t layer, const Rows& x, const Hook& hook) const {
    const oracle::LayerTensors& w = weights.layers[static_cast<size_t>(layer)];
    const Rows normed = hook(layer, Stage::kFfnNorm, Norm(x, w.ffn_norm));
    if (!w.experts.empty()) {
      const Rows router =
          hook(layer, Stage::kFfnRouter, oracle::ExpertRouter(ExpertShape(), w, normed));
      const Rows outputs =
          hook(layer, Stage::kFfnHidden, oracle::ExpertHidden(ExpertShape(), w, router, normed));
      return hook(layer, Stage::kFfnOut, ExpertOut(w, x, router, outputs));
    }
    const Rows hidden = hook(layer, Stage::kFfnHidden, Gate(w, normed));
    return hook(layer, Stage::kFfnOut, FfnSum(w, x, hidden));
  }

  // Exact rows from floats; none give none. REQUIRES: whole rows.
  static Rows FromFloats(std::span<const float> values, int64_t width) {
    const auto elements = static_cast<int64_t>(values.size());
    LS_CHECK(width > 0 && elements % width == 0, "{} elements in rows of {}", elements, width);
    Rows rows(elements / width, width);
    std::ranges::copy(values, rows.values.begin());
    return rows;
  }

  Rows AttendRows(const StageInputs& in, const Rows& q) const {
    const int64_t stride = weights.hp.kv_heads * weights.hp.head_dim;
    oracle::AttentionInput input = AttentionShape(in.layer);
    input.visible.assign(in.visible.begin(), in.visible.end());
    LS_CHECK(static_cast<int64_t>(input.visible.size()) == q.n, "{} queries, {} visible", q.n,
             input.visible.size());
    const Rows keys = FromFloats(in.keys, stride);
    const Rows values = FromFloats(in.values, stride);
    for (int64_t rows : input.visible) {
      LS_CHECK(rows >= 1 && rows <= keys.n && rows <= values.n, "{} rows visible of {} and {}",
               rows, keys.n, values.n);
    }
    return oracle::Attention(input, q, keys, values);
  }

  Rows RouterOf(const StageInputs& in) const {
    return FromFloats(in.router, weights.hp.experts + (weights.hp.shared_dim > 0 ? 1 : 0));
  }

  Rows Compute(const StageInputs& in) const {
    const oracle::Hyperparameters& hp = weights.hp;
    if (in.stage == Stage::kEmbedding) return Embed(in.tokens);
    const auto of = [&](int64_t width) { return FromFloats(in.input, width); };
    if (in.stage == Stage::kFinalNorm) return Norm(of(hp.dim), weights.final_norm);
    if (in.stage == Stage::kLogits) return LogitsOf(of(hp.dim));
    const std::vector<int64_t> positions(in.positions.begin(), in.positions.end());
    const int64_t q_dim = hp.heads * hp.head_dim;
    const int64_t kv_dim = hp.kv_heads * hp.head_dim;
    const oracle::LayerTensors& w = weights.layers.at(static_cast<size_t>(in.layer));
    switch (in.stage) {
      case Stage::kAttnNorm:
        return Norm(of(hp.dim), w.attn_norm);
      case Stage::kQuery:
        return Project(w.q, w.q_bias, of(hp.dim));
      case Stage::kKey:
        return Project(w.k, w.k_bias, of(hp.dim));
      case Stage::kValue:
        return Project(w.v, w.v_bias, of(hp.dim));
      case Stage::kQueryRope:
        return Rotate(in.layer, of(q_dim), w.q_norm, positions);
      case Stage::kKeyRope:
        return Has(ReferenceFault::kRopeUnrotatedKey)
                   ? of(kv_dim)
                   : Rotate(in.layer, of(kv_dim), w.k_norm, positions);
      case Stage::kAttention:
        return AttendRows(in, of(q_dim));
      case Stage::kAttnOut:
        return AttnSum(w, FromFloats(in.stream, hp.dim), of(q_dim));
      case Stage::kFfnNorm:
        return Norm(of(hp.dim), w.ffn_norm);
      case Stage::kFfnRouter:
        return oracle::ExpertRouter(ExpertShape(), w, of(hp.dim));
      case Stage::kFfnHidden:
        if (w.experts.empty()) return Gate(w, of(hp.dim));
        return oracle::ExpertHidden(ExpertShape(), w, RouterOf(in), of(hp.dim));
      case Stage::kFfnOut:
        if (!w.experts.empty()) {
          return ExpertOut(w, FromFloats(in.stream, hp.dim), RouterOf(in),
                           of(hp.experts_used * hp.expert_dim + hp.shared_dim));
        }
        return FfnSum(w, FromFloats(in.stream, hp.dim), of(hp.ffn_dim));
      default:  // the rows of a cache
        return of(kv_dim);
    }
  }

  // The last token's logits, [1, vocab].
  Rows Forward(std::span<const int32_t> tokens, const std::vector<int64_t>& positions,
               const Hook& hook) const {
    Rows x = hook(-1, Stage::kEmbedding, Embed(tokens));
    for (int64_t layer = 0; layer < weights.hp.layers; ++layer) {
      x = AttentionBlock(layer, x, positions, hook);
      x = FfnBlock(layer, x, hook);
    }
    Rows last(1, x.width);
    std::copy_n(x.row(x.n - 1), x.width, last.row(0));
    const Rows normed = hook(weights.hp.layers, Stage::kFinalNorm, Norm(last, weights.final_norm));
    return hook(weights.hp.layers, Stage::kLogits, LogitsOf(normed));
  }
};

std::vector<ReferenceFault> AllReferenceFaults() {
  std::vector<ReferenceFault> faults;
  for (int fault = 1; fault <= static_cast<int>(ReferenceFault::kTruncatedCodes); ++fault) {
    faults.push_back(static_cast<ReferenceFault>(fault));
  }
  return faults;
}

ReferenceTransformer::ReferenceTransformer(std::shared_ptr<const GgufFile> file,
                                           ReferenceOptions options)
    : impl_(new Impl{oracle::ReadAdaptedWeights(std::move(file), options), options}) {}

ReferenceTransformer::~ReferenceTransformer() = default;

bool ReferenceTransformer::quantized() const {
  const oracle::Weights& w = impl_->weights;
  return w.head.quantized() || std::ranges::any_of(w.layers, [](const oracle::LayerTensors& t) {
           return t.q.quantized() || t.k.quantized() || t.v.quantized() || t.out.quantized() ||
                  t.gate.quantized() || t.up.quantized() || t.down.quantized() ||
                  (!t.experts.empty() && t.experts.front().gate.quantized());
         });
}

std::vector<double> ReferenceTransformer::Logits(
    std::span<const int32_t> tokens, std::span<const int32_t> positions,
    const std::function<void(const ReferenceRows&)>& on_stage) const {
  LS_CHECK(!tokens.empty() && tokens.size() == positions.size(), "{} tokens, {} positions",
           tokens.size(), positions.size());
  LS_CHECK(positions[0] >= 0, "position {}", positions[0]);
  for (size_t i = 1; i < positions.size(); ++i) {
    LS_CHECK(positions[i - 1] < positions[i], "position {} after {}", positions[i],
             positions[i - 1]);
  }
  const Impl::Hook hook = [&](int64_t layer, Stage stage, Rows rows) {
    if (on_stage) {
      on_stage({.layer = static_cast<int32_t>(layer),
                .stage = stage,
                .width = rows.width,
                .values = rows.values,
                .bounds = rows.bounds});
    }
    return rows;
  };
  return impl_->Forward(tokens, {positions.begin(), positions.end()}, hook).values;
}

ReferenceRows ReferenceTransformer::Expected(const StageInputs& inputs) const {
  Rows rows = impl_->Compute(inputs);
  return {.layer = inputs.layer,
          .stage = inputs.stage,
          .width = rows.width,
          .values = std::move(rows.values),
          .bounds = std::move(rows.bounds)};
}

ReferenceTransformer::StageReport ReferenceTransformer::CheckStages(
    std::span<const int32_t> tokens, std::span<const RecordingTrace::Entry> trace) const {
  StageReport report;
  LS_CHECK(!trace.empty(), "an empty trace");
  const std::vector<int64_t> positions(trace[0].positions.begin(), trace[0].positions.end());
  LS_CHECK(positions.size() == tokens.size(), "{} tokens, {} traced positions", tokens.size(),
           positions.size());
  size_t next = 0;
  const Impl::Hook hook = [&](int64_t layer, Stage stage, Rows rows) {
    LS_CHECK(next < trace.size(), "the trace ends before {}", StageName(stage));
    const RecordingTrace::Entry& entry = trace[next++];
    LS_CHECK(
        entry.layer == layer && entry.stage == stage && entry.rows.size() == rows.values.size(),
        "layer {} {} with {} elements, traced layer {} {} with {}", layer, StageName(stage),
        rows.values.size(), entry.layer, StageName(entry.stage), entry.rows.size());
    for (size_t i = 0; i < entry.rows.size(); ++i) {
      const double error = std::fabs(entry.rows[i] - rows.values[i]);
      ++report.elements;
      if (rows.bounds[i] > 0)
        report.worst_ratio = std::max(report.worst_ratio, error / rows.bounds[i]);
      if (!(error <= rows.bounds[i]) && report.first_failure.empty()) {
        report.first_failure = fmt::format(
            "layer {}, {}, row {}, element {}: {:.9g}, reference {:.9g}, off by {:.3g}, bound "
            "{:.3g}",
            layer, StageName(stage), i / static_cast<size_t>(rows.width),
            i % static_cast<size_t>(rows.width), entry.rows[i], rows.values[i], error,
            rows.bounds[i]);
      }
      rows.values[i] = entry.rows[i];
    }
    return rows;
  };
  impl_->Forward(tokens, positions, hook);
  LS_CHECK(next == trace.size(), "{} stages, {} traced", next, trace.size());
  return report;
}

}  // namespace lockstep
