#include "reports/peer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "caches/temporary_folder.h"
#include "engine/math.h"
#include "engine/model.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"
#include "reports/peer/distribution.h"
#include "reports/peer/gguf_copy.h"

namespace lockstep {
namespace {

// A token that llama.cpp takes for a control token by its text.
constexpr std::string_view kEndText = "</s>";

using Distributions = std::vector<std::vector<double>>;  // [positions][vocab_size], ln p

struct BothSides {
  Distributions ours, theirs;
};

// lockstep's side of one model: a sequence that grows by a token at a time.
class OurSide {
 public:
  // From the step `shift_from` on, positions are one too large.
  OurSide(std::shared_ptr<const Model> model, int32_t positions, int32_t shift_from)
      : cache_(
            ParseCacheSpec("simple").make({.geometry = model->config().geometry(positions + 1)})),
        transformer_(std::move(model)),
        shift_from_(shift_from) {}

  std::vector<double> Next(int32_t token) {
    const int32_t position = step_ + (step_ >= shift_from_ ? 1 : 0);
    ++step_;
    return internal::LogProbabilities(transformer_.Forward({&token, 1}, {&position, 1}, *cache_),
                                      false);
  }

 private:
  std::unique_ptr<KvCache> cache_;
  Transformer transformer_;
  int32_t shift_from_;
  int32_t step_ = 0;
};

// From `p` to `q`.
PeerDistance DistanceBetween(const Distributions& p, const Distributions& q) {
  PeerDistance distance;
  double log_sum = 0, kl_sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const internal::LogDistance of_one = internal::DistanceOf(p[i], q[i]);
    const double kl = internal::KlDivergence(p[i], q[i]);
    ++distance.positions;
    distance.tokens += of_one.tokens;
    distance.left_out += of_one.left_out;
    distance.log_max = std::max(distance.log_max, of_one.max);
    distance.kl_max = std::isnan(kl) ? INFINITY : std::max(distance.kl_max, kl);
    distance.likeliest_equal += internal::ArgmaxOf(p[i]) == internal::ArgmaxOf(q[i]) ? 1 : 0;
    log_sum += of_one.sum;
    kl_sum += kl;
  }
  distance.log_mean = log_sum / static_cast<double>(std::max<int64_t>(distance.tokens, 1));
  distance.kl_mean = kl_sum / std::max(distance.positions, 1);
  return distance;
}

bool IsMatrix(const GgufTensor& tensor) { return tensor.shape.size() >= 2; }

class PeerCheck {
 public:
  explicit PeerCheck(const PeerCheckOptions& options) : options_(options) {
    result_.seed = options.seed;
    try {
      result_.engine = Session().hello().engine;
    } catch (const EngineFailure& failure) {
      throw Error({failure.parts().where, failure.parts().what,
                   "name the command of an engine that speaks the protocol"});
    }
  }

  PeerCheckResult Run(std::span<const PeerCheckModel> models) {
    for (const PeerCheckModel& model : models) {
      if (PlantedOf(model) == nullptr) continue;
      if (options_.on_progress) options_.on_progress(model.name);
      result_.rows.push_back(RowOf(model));
    }
    if (result_.rows.empty() && options_.plant) {
      throw Error({"--plant", "no model has what the planted fault changes",
                   "choose another fault or model"});
    }
    return std::move(result_);
  }

 private:
  EngineSession& Session() {
    if (!session_) session_.emplace(options_.command, options_.timeout_seconds);
    return *session_;
  }

  static std::string WeightsOf(const GgufFile& file) {
    std::set<GgmlType> types;
    for (const GgufTensor& tensor : file.tensors()) {
      if (IsMatrix(tensor) && TraitsOf(tensor.type)) types.insert(tensor.type);
    }
    std::string names;
    for (const GgmlType type : types) {
      names += fmt::format("{}{}", names.empty() ? "" : "+", TraitsOf(type)->name);
    }
    return names;
  }

  PeerCheckRow RowOf(const PeerCheckModel& model) {
    PeerCheckRow row{.model = model.name,
                     .architecture = model.file->FindString("general.architecture").value_or("-"),
                     .weights = WeightsOf(*model.file)};
    const PeerKnown::Kind known = KnownOf(model);
    try {
      CompareTexts(model, &row);
      if (!model.file->tensors().empty()) CompareDistributions(model, &row);
      Judge(&row);
      if (known == PeerKnown::Kind::kIgnoresKey && row.verdict == PeerCheckRow::Verdict::kHolds) {
        row.verdict = PeerCheckRow::Verdict::kKnown;
        row.detail = fmt::format("{}: without '{}' both agree", model.known.why, model.known.text);
      }
    } catch (const EngineRefusal& refusal) {
      const std::string_view what = refusal.what();
      const bool is_known =
          known == PeerKnown::Kind::kRefuses && what.find(model.known.text) != what.npos;
      if (!row.detail.empty()) return row;  // ids that differ are no part of what is known
      if (is_known) row.verdict = PeerCheckRow::Verdict::kKnown;
      row.detail = is_known ? fmt::format("{}: {}", model.known.why, what) : std::string(what);
    } catch (const EngineFailure& failure) {
      row.detail = failure.what();
      session_.reset();
    }
    return row;
  }

  PeerKnown::Kind KnownOf(const PeerCheckModel& model) const {
    return result_.engine.starts_with("llama.cpp") ? model.known.kind : PeerKnown::Kind::kNothing;
  }

  // The model that the peer is taken to compute.
  std::shared_ptr<const GgufFile> OursOf(const PeerCheckModel& model) const {
    if (KnownOf(model) != PeerKnown::Kind::kIgnoresKey) return model.file;
    internal::GgufCopy copy(*model.file);
    copy.metadata.erase(model.known.text);
    return GgufFile::FromBytes(copy.Image(), model.name);
  }

  int32_t Load(const std::string& path, int32_t positions) {
    EngineLoad load{.model = path, .positions = positions};
    const std::vector<std::string>& known = Session().hello().options;
    for (const EngineOption& option : options_.options) {
      if (std::ranges::find(known, option.name) != known.end()) load.options.push_back(option);
    }
    return Session().Load(load);
  }

  void CompareTexts(const PeerCheckModel& model, PeerCheckRow* row) {
    Load(model.path, 0);
    if (!Session().hello().can_tokenize) return;
    const auto tokenizer = Tokenizer::Load(*model.file);
    const std::vector<int32_t> end_ids = tokenizer->Encode(kEndText);
    const bool end_is_user_defined = std::ranges::any_of(
        end_ids, [&](int32_t id) { return tokenizer->kind(id) == TokenKind::kUserDefined; });
    for (const std::string_view text : AwkwardTexts()) {
      ++row->texts;
      if (tokenizer->Encode(text) == Session().Tokenize(text)) {
        ++row->texts_equal;
      } else if (end_is_user_defined && text.find(kEndText) != text.npos) {
        ++row->texts_known;
      } else if (row->detail.empty()) {
        row->detail = fmt::format("token ids of \"{}\" differ", text);
      }
    }
  }

  void CompareDistributions(const PeerCheckModel& model, PeerCheckRow* row) {
    const auto planted = PlantedOf(model);
    row->bound = &PeerBoundOf(*model.file);
    text_.clear();
    if (row->bound->type == GgmlType::kF32) {
      const BothSides both = RunBoth(model.path, planted, row);
      row->twin = DistanceBetween(both.ours, both.theirs);
      CompareGreedy(both, row);
      row->stored = row->twin;
      return;
    }
    const bool twin_is_sound = options_.plant == PeerPlantKind::kStoredRows;
    const BothSides twin = RunTwin(*model.file, twin_is_sound ? *OursOf(model) : *planted, row);
    CompareGreedy(twin, row);
    const BothSides stored = RunBoth(model.path, planted, row);
    row->twin = DistanceBetween(twin.ours, twin.theirs);
    row->stored = DistanceBetween(stored.ours, stored.theirs);
    row->our_rounding = DistanceBetween(twin.ours, stored.ours);
    row->their_rounding = DistanceBetween(twin.theirs, stored.theirs);
  }

  // nullptr when there is nothing to plant in.
  std::shared_ptr<const GgufFile> PlantedOf(const PeerCheckModel& model) const {
    const std::shared_ptr<const GgufFile> ours = OursOf(model);
    return options_.plant ? PlantedModel(ours, *options_.plant) : ours;
  }

  BothSides RunTwin(const GgufFile& theirs, const GgufFile& ours, PeerCheckRow* row) {
    const std::string path = folder_.File("twin.gguf");
    for (const bool tied : {false, true}) {
      WriteWholeFile(path, internal::F32Twin(theirs, tied));
      const auto our_twin = GgufFile::FromBytes(internal::F32Twin(ours, tied), path);
      try {
        return RunBoth(path, our_twin, row);
      } catch (const EngineRefusal&) {
        if (tied) throw;
      }
    }
    return {};
  }

  // Both on `text_`, which lockstep first writes when there is none. Sets the row's bound on twins.
  BothSides RunBoth(const std::string& path, const std::shared_ptr<const GgufFile>& file,
                    PeerCheckRow* row) {
    const auto model = Model::Load(file);
    if (model->config().activation == Activation::kGelu) row->twin_bound = kTwinLogMaxGelu;
    const int32_t vocabulary = model->config().vocab_size;
    const int32_t room = std::min(model->config().context_length - 1,
                                  options_.random_tokens + options_.greedy_tokens);
    if (Load(path, room) != vocabulary) {
      throw EngineFailure({options_.command.front(), "has a vocabulary of another size", ""});
    }
    if (text_.empty()) {
      Random random = Random(options_.seed).Split(static_cast<uint64_t>(room));
      for (int32_t i = 0; i < std::min(options_.random_tokens, room); ++i) {
        text_.push_back(static_cast<int32_t>(random.Below(static_cast<uint32_t>(vocabulary))));
      }
      random_tokens_ = static_cast<int32_t>(text_.size());
    }
    OurSide our_side(model, room,
                     options_.plant == PeerPlantKind::kPosition ? room / 2 : INT32_MAX);
    BothSides sides;
    for (int32_t position = 0; position < room; ++position) {
      const auto at = static_cast<size_t>(position);
      if (at == text_.size()) text_.push_back(internal::ArgmaxOf(sides.ours.back()));
      sides.ours.push_back(our_side.Next(text_[at]));
      sides.theirs.push_back(PeerNext(position, text_[at]));
    }
    return sides;
  }

  std::vector<double> PeerNext(int32_t position, int32_t token) {
    return internal::LogProbabilities(
        Session().Step(EngineRows{.position = position, .tokens = {&token, 1}}),
        Session().hello().probabilities);
  }

  // The peer goes on alone behind the random tokens, which it still has.
  void CompareGreedy(const BothSides& sides, PeerCheckRow* row) {
    row->greedy_tokens = static_cast<int32_t>(text_.size()) - random_tokens_;
    if (row->greedy_tokens == 0) return;
    Session().Rollback(0, random_tokens_);
    int32_t position = random_tokens_;
    int32_t token = internal::ArgmaxOf(sides.theirs[static_cast<size_t>(position) - 1]);
    while (token == text_[static_cast<size_t>(position)]) {
      if (++row->greedy_equal == row->greedy_tokens) return;
      token = internal::ArgmaxOf(PeerNext(position++, token));
    }
    const std::vector<double>& ours = sides.ours[static_cast<size_t>(position) - 1];
    row->greedy_gap = ours[static_cast<size_t>(text_[static_cast<size_t>(position)])] -
                      ours[static_cast<size_t>(token)];
  }

  static void Judge(PeerCheckRow* row) {
    if (!row->detail.empty()) return;
    const double rounding =
        row->bound == nullptr ? 0 : row->bound->rounding * row->their_rounding.log_mean;
    if (!(row->twin.log_max <= row->twin_bound)) {
      row->detail = fmt::format("on the twin |ln p - ln q| of {:.2g} is more than {:g}",
                                row->twin.log_max, row->twin_bound);
    } else if (!(row->our_rounding.log_mean <= rounding)) {
      row->detail = fmt::format(
          "lockstep's rounding costs {:.2g} in the mean of |ln p - ln q|, the peer's {:.2g}",
          row->our_rounding.log_mean, row->their_rounding.log_mean);
    } else if (!(row->greedy_gap <= 2 * row->twin_bound)) {
      row->detail = fmt::format("alone, the peer chose a token that is less likely by {:.2g}",
                                row->greedy_gap);
    } else if (row->twin.positions + row->texts == 0) {
      row->detail = "nothing to compare";
    } else {
      row->verdict = PeerCheckRow::Verdict::kHolds;
      if (row->texts_known == 0) return;
      row->detail = fmt::format(
          "the peer takes {} for a control token, and the file says that it is user-defined",
          kEndText);
    }
  }

  PeerCheckOptions options_;
  std::optional<EngineSession> session_;
  TemporaryFolder folder_;
  std::vector<int32_t> text_;  // of the model at hand
  int32_t random_tokens_ = 0;  // of it, at its begin
  PeerCheckResult result_;
};

}  // namespace

PeerCheckModel SyntheticPeerModel(const SyntheticSpec& spec, uint64_t seed,
                                  const std::string& folder) {
  internal::GgufCopy copy(*MakeSyntheticModel(spec, seed));
  // llama.cpp looks for some families in the name, and then for tokens that they have.
  copy.metadata["general.name"] = std::string("synthetic");
  PeerCheckModel model{.name = spec.name,
                       .path = fmt::format("{}/{}.gguf", folder, spec.name),
                       .file = GgufFile::FromBytes(copy.Image(), spec.name)};
  WriteWholeFile(model.path, model.file->bytes());
  if (spec.architecture == "llama" && spec.qk_norm) {
    model.known = {.kind = PeerKnown::Kind::kRefuses,
                   .text = "wrong number of tensors",
                   .why = "llama.cpp has no QK-norm in the family llama"};
  } else if (spec.architecture == "llama" && spec.window > 0) {
    model.known = {.kind = PeerKnown::Kind::kIgnoresKey,
                   .text = "llama.attention.sliding_window",
                   .why = "llama.cpp has no sliding window in the family llama"};
  }
  return model;
}

bool PeerCheckResult::differs() const {
  return std::ranges::any_of(
      rows, [](const PeerCheckRow& row) { return row.verdict == PeerCheckRow::Verdict::kDiffers; });
}

bool PeerCheckResult::compared() const {
  return std::ranges::any_of(
      rows, [](const PeerCheckRow& row) { return row.verdict == PeerCheckRow::Verdict::kHolds; });
}

PeerCheckResult RunPeerCheck(std::span<const PeerCheckModel> models,
                             const PeerCheckOptions& options) {
  CheckFloatingPointEnvironment();
  return PeerCheck(options).Run(models);
}

}  // namespace lockstep
