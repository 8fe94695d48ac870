#include "reports/peer_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/random.h"
#include "oracle/difference.h"
#include "reports/peer/distribution.h"
#include "reports/peer/matrix_ways.h"

namespace lockstep {
namespace {

using internal::Way;
using internal::WayInput;

constexpr std::array kAxes = {
    EngineAxis{"repeat", "the same once more"},
    EngineAxis{"chunking", "how the text is cut into steps"},
    EngineAxis{"threads", "how many threads share a step"},
    EngineAxis{"batch", "which other sequences share a step, and in which order"},
    EngineAxis{"rollback", "tokens that were written and taken back"},
    EngineAxis{"fork", "sequences that were one before"},
    EngineAxis{"refusals", "requests that have to be refused and change nothing"},
};

struct Texts {
  std::vector<int32_t> text, other[2];
};

Texts MakeTexts(int32_t vocabulary, const EngineMatrixOptions& options) {
  const auto make = [&](uint64_t stream) {
    Random random = Random(options.seed).Split(stream);
    std::vector<int32_t> tokens(static_cast<size_t>(options.tokens));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random.Below(static_cast<uint32_t>(vocabulary)));
    }
    return tokens;
  };
  return {make(1), {make(2), make(3)}};
}

// Compares what is said at positions with the reference, and adds it up in a cell.
class Recorder {
 public:
  Recorder(const std::vector<std::vector<float>>& reference, bool probabilities,
           const std::string& model, EngineCell* cell)
      : reference_(reference), probabilities_(probabilities), model_(model), cell_(*cell) {}

  void Record(int32_t position, const std::vector<float>& values) {
    const std::vector<float>& expected = reference_[static_cast<size_t>(position)];
    ++cell_.compared;
    const int64_t first = FirstFloatDifference(values, expected);
    if (first < 0) return;
    ++cell_.changed;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto ulp = UlpDistance(values[i], expected[i]);
      cell_.ulp_max = std::max(cell_.ulp_max, ulp.value_or(UINT64_MAX));
    }
    const auto log_p = internal::LogProbabilities(expected, probabilities_);
    const auto log_q = internal::LogProbabilities(values, probabilities_);
    const double kl = internal::KlDivergence(log_p, log_q);
    cell_.kl_max = std::isnan(kl) ? INFINITY : std::max(cell_.kl_max, kl);
    cell_.likeliest_changed += internal::ArgmaxOf(log_p) == internal::ArgmaxOf(log_q) ? 0 : 1;
    if (!cell_.detail.empty()) return;
    const auto at = static_cast<size_t>(first);
    cell_.detail = fmt::format("{}, position {}, token {}: {:.9g} against {:.9g}", model_, position,
                               first, values[at], expected[at]);
  }

 private:
  const std::vector<std::vector<float>>& reference_;
  bool probabilities_;
  const std::string& model_;
  EngineCell& cell_;
};

class MatrixRun {
 public:
  explicit MatrixRun(const EngineMatrixOptions& options)
      : options_(options), ways_(internal::AllWays(options.threads)) {
    if (options.tokens < 16) {
      throw Error({"--tokens", "a text of so few has no halves and chunks", "take at least 16"});
    }
    KeepAxes();
    matrix_.seed = options.seed;
    for (const Way& way : ways_) {
      matrix_.cells.push_back({.axis = way.axis, .value = way.value});
    }
    try {
      matrix_.engine = Session().hello().engine;
      matrix_.probabilities = Session().hello().probabilities;
    } catch (const EngineFailure& failure) {
      throw Error({failure.parts().where, failure.parts().what,
                   "name the command of an engine that speaks the protocol"});
    }
  }

  EngineMatrix Run(std::span<const EngineMatrixModel> models) {
    for (const EngineMatrixModel& model : models) RunModel(model);
    for (EngineCell& cell : matrix_.cells) {
      if (cell.verdict == EngineCell::Verdict::kEqual && cell.changed > 0) {
        cell.verdict = EngineCell::Verdict::kDiffers;
      }
    }
    return std::move(matrix_);
  }

 private:
  EngineSession& Session() {
    if (!session_) session_.emplace(options_.command, options_.timeout_seconds);
    return *session_;
  }

  void KeepAxes() {
    const std::vector<std::string>& wanted = options_.axes;
    for (const std::string& name : wanted) {
      if (std::ranges::find(kAxes, name, &EngineAxis::name) != kAxes.end()) continue;
      std::string names;
      for (const EngineAxis& axis : kAxes) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", axis.name);
      }
      throw Error({"--axis", fmt::format("there is no axis '{}'", name), "choose of " + names});
    }
    if (wanted.empty()) return;
    std::erase_if(
        ways_, [&](const Way& way) { return std::ranges::find(wanted, way.axis) == wanted.end(); });
  }

  int32_t Load(const EngineMatrixModel& model, int32_t sequences, int32_t threads) {
    return Session().Load({.model = model.path,
                           .positions = options_.tokens,
                           .sequences = sequences,
                           .threads = threads,
                           .options = options_.options});
  }

  void RunModel(const EngineMatrixModel& model) {
    matrix_.models.push_back(model.name);
    std::vector<std::vector<float>> reference;
    Texts texts;
    try {
      texts = MakeTexts(Load(model, 1, 1), options_);
    } catch (const EngineRefusal& refusal) {
      throw Error({model.path, refusal.parts().what, "give a model that the engine loads"});
    } catch (const EngineFailure& failure) {
      return FailAll(model, failure.what());
    }
    try {
      for (int32_t position = 0; position < options_.tokens; ++position) {
        reference.push_back(Session().Step(
            EngineRows{.position = position,
                       .tokens = std::span(texts.text).subspan(static_cast<size_t>(position), 1)}));
      }
    } catch (const Error& error) {
      return FailAll(model, error.what());
    }
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (options_.on_progress) {
        options_.on_progress(fmt::format("{}: {} {}", model.name, ways_[i].axis, ways_[i].value));
      }
      RunWay(model, ways_[i], texts, reference, &matrix_.cells[i]);
    }
  }

  // The reference could not be computed.
  void FailAll(const EngineMatrixModel& model, const std::string& why) {
    session_.reset();
    for (EngineCell& cell : matrix_.cells) Fail(model, why, &cell);
  }

  static void Fail(const EngineMatrixModel& model, const std::string& why, EngineCell* cell) {
    if (cell->verdict != EngineCell::Verdict::kFailed) {
      cell->detail = fmt::format("{}: {}", model.name, why);
    }
    cell->verdict = EngineCell::Verdict::kFailed;
  }

  void RunWay(const EngineMatrixModel& model, const Way& way, const Texts& texts,
              const std::vector<std::vector<float>>& reference, EngineCell* cell) {
    try {
      if (way.new_process) session_.reset();
      if (way.needs_fork && !Session().hello().can_fork) {
        cell->verdict = EngineCell::Verdict::kUnsupported;
        return;
      }
      const auto load = [&] { Load(model, way.sequences, way.threads); };
      load();
      Recorder recorder(reference, matrix_.probabilities, model.name, cell);
      way.run(
          {.session = Session(),
           .text = texts.text,
           .other = {texts.other[0], texts.other[1]},
           .seed = options_.seed,
           .record = [&](int32_t position,
                         const std::vector<float>& values) { recorder.Record(position, values); },
           .load = load});
    } catch (const EngineFailure& failure) {
      session_.reset();
      Fail(model, failure.what(), cell);
    } catch (const EngineRefusal& refusal) {
      Fail(model, refusal.what(), cell);
    } catch (const internal::WrongAnswer& wrong) {
      Fail(model, wrong.what(), cell);
    }
  }

  EngineMatrixOptions options_;
  std::vector<Way> ways_;
  std::optional<EngineSession> session_;
  EngineMatrix matrix_;
};

}  // namespace

std::span<const EngineAxis> EngineAxes() { return kAxes; }

bool EngineMatrix::holds() const {
  return std::ranges::none_of(cells, [](const EngineCell& cell) {
    return cell.verdict == EngineCell::Verdict::kDiffers ||
           cell.verdict == EngineCell::Verdict::kFailed;
  });
}

bool EngineMatrix::compared() const {
  return std::ranges::any_of(
      cells, [](const EngineCell& cell) { return cell.verdict == EngineCell::Verdict::kEqual; });
}

EngineMatrix RunEngineMatrix(std::span<const EngineMatrixModel> models,
                             const EngineMatrixOptions& options) {
  return MatrixRun(options).Run(models);
}

}  // namespace lockstep
