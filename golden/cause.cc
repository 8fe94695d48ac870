#include "golden/cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "caches/check.h"
#include "caches/digest.h"
#include "golden/cause/shapes.h"

namespace lockstep {
namespace {

struct NamedCause {
  Cause cause;
  std::string_view name;
};

constexpr std::array kNames = {
    NamedCause{Cause::kReductionOrder, "reduction order"},
    NamedCause{Cause::kUnwritten, "unwritten"},
    NamedCause{Cause::kNotRotated, "not rotated"},
    NamedCause{Cause::kWrongPosition, "wrong position"},
    NamedCause{Cause::kRotatedTwice, "rotated twice"},
    NamedCause{Cause::kRopePairing, "rope pairing"},
    NamedCause{Cause::kRopeFrequencies, "rope frequencies"},
    NamedCause{Cause::kKvSwapped, "k/v swapped"},
    NamedCause{Cause::kStaleRow, "stale row"},
    NamedCause{Cause::kShiftedRow, "shifted row"},
    NamedCause{Cause::kOtherSequence, "other sequence"},
    NamedCause{Cause::kHeadMapping, "head mapping"},
    NamedCause{Cause::kMask, "mask"},
    NamedCause{Cause::kWindow, "window"},
    NamedCause{Cause::kMissingBias, "missing bias"},
    NamedCause{Cause::kAdapters, "other adapters"},
    NamedCause{Cause::kMissingResidual, "missing residual"},
    NamedCause{Cause::kMissingNormWeight, "missing norm weight"},
    NamedCause{Cause::kMissingNorm, "missing norm"},
    NamedCause{Cause::kWrongEpsilon, "wrong epsilon"},
    NamedCause{Cause::kGateUpSwapped, "gate/up swapped"},
    NamedCause{Cause::kWrongScale, "wrong scale"},
    NamedCause{Cause::kQuantization, "quantization"},
    NamedCause{Cause::kTruncatedTail, "truncated tail"},
    NamedCause{Cause::kSingleBit, "single bit"},
    NamedCause{Cause::kWritePath, "write path"},
    NamedCause{Cause::kLength, "length"},
    NamedCause{Cause::kOutcome, "outcome"},
    NamedCause{Cause::kUnknown, "unknown"},
};

// A run of elements that one mistake explains or does not: a head of a row, or a row.
struct Piece {
  size_t row = 0;
  size_t begin = 0;  // among all elements
  size_t end = 0;
};

// What explains some of the pieces, and how many.
struct Match {
  Cause cause = Cause::kUnknown;
  std::string says;
  std::vector<bool> explains;  // by piece

  int64_t pieces() const { return std::ranges::count(explains, true); }
};

class Matcher {
 public:
  explicit Matcher(const CausePlace& place) : place_(place) {
    const auto width = static_cast<size_t>(place.width);
    const size_t size = place.head_dim > 0 ? static_cast<size_t>(place.head_dim) : width;
    for (size_t begin = 0; begin < place.is.size(); begin += size) {
      const Piece piece{.row = begin / width, .begin = begin, .end = begin + size};
      const size_t before = differing_.size();
      for (size_t i = piece.begin; i < piece.end; ++i) {
        if (Differs(place, i)) differing_.push_back(i);
      }
      if (differing_.size() > before) pieces_.push_back(piece);
    }
  }

  const std::vector<size_t>& differing() const { return differing_; }
  size_t pieces() const { return pieces_.size(); }
  const std::vector<Match>& matches() const { return matches_; }

  void Try(const CauseCandidate& candidate) {
    LS_CHECK(candidate.values.size() == place_.is.size(), "{}: {} elements of {}", candidate.says,
             candidate.values.size(), place_.is.size());
    Keep(candidate.cause, candidate.says, [&](const Piece& piece) {
      bool told_apart = false;  // from rows without the mistake
      for (size_t i = piece.begin; i < piece.end; ++i) {
        const double bound = candidate.bounds.empty() ? 0 : candidate.bounds[i];
        if (!Is(i, candidate.values[i], bound)) return false;
        told_apart = told_apart || std::fabs(candidate.values[i] - place_.should[i]) > 2 * bound;
      }
      return told_apart;
    });
  }

  void Try(const KnownRow& known) {
    LS_CHECK(std::ssize(known.values) == place_.width, "{}: {} elements of {}", known.says,
             known.values.size(), place_.width);
    Keep(known.cause, known.says, [&](const Piece& piece) {
      if (known.row >= 0 && static_cast<size_t>(known.row) != piece.row) return false;
      if (known.home >= 0 && static_cast<size_t>(known.home) == piece.row) return false;
      for (size_t i = piece.begin; i < piece.end; ++i) {
        if (!Is(i, known.values[i % static_cast<size_t>(place_.width)], 0)) return false;
      }
      return true;
    });
  }

  // Rows and heads of the place itself, in another place.
  void TryNeighbours() {
    const auto width = static_cast<size_t>(place_.width);
    const size_t rows = place_.is.size() / width;
    for (size_t from = 0; from < rows; ++from) {
      TryMoved(Cause::kShiftedRow, fmt::format("the row of position {}", PositionOf(from)),
               [&](const Piece& piece) { return from * width + piece.begin % width; });
    }
    if (place_.head_dim == 0) return;
    const auto head = static_cast<size_t>(place_.head_dim);
    for (size_t from = 0; from < width / head; ++from) {
      TryMoved(Cause::kHeadMapping, fmt::format("head {} of the same row", from),
               [&](const Piece& piece) { return piece.row * width + from * head; });
    }
  }

 private:
  bool Is(size_t i, double value, double bound) const {
    if (CanonicalBits(place_.is[i]) == CanonicalBits(static_cast<float>(value))) return true;
    return std::fabs(place_.is[i] - value) <= bound && bound > 0;
  }

  int32_t PositionOf(size_t row) const {
    return row < place_.positions.size() ? place_.positions[row] : static_cast<int32_t>(row);
  }

  template <typename From>
  void TryMoved(Cause cause, const std::string& says, From&& from) {
    Keep(cause, says, [&](const Piece& piece) {
      const size_t source = from(piece);
      if (source == piece.begin) return false;
      for (size_t i = 0; i < piece.end - piece.begin; ++i) {
        const double bound = place_.bounds.empty() ? 0 : place_.bounds[source + i];
        if (!Is(piece.begin + i, place_.should[source + i], bound)) return false;
      }
      return true;
    });
  }

  template <typename Explains>
  void Keep(Cause cause, const std::string& says, Explains&& explains) {
    Match match{.cause = cause, .says = says, .explains = std::vector<bool>(pieces_.size())};
    for (size_t i = 0; i < pieces_.size(); ++i) match.explains[i] = explains(pieces_[i]);
    if (match.pieces() > 0) matches_.push_back(std::move(match));
  }

  const CausePlace& place_;
  std::vector<Piece> pieces_;
  std::vector<size_t> differing_;
  std::vector<Match> matches_;
};

CauseVerdict VerdictOf(Cause cause, const std::string& says, int64_t explained, size_t pieces,
                       bool heads) {
  return {cause,
          fmt::format("{} of {} {} that differ {} {}", explained, pieces, heads ? "heads" : "rows",
                      explained == 1 ? "equals" : "equal", says),
          static_cast<double>(explained) / static_cast<double>(pieces)};
}

// The best single explanation, or the best of several of one cause.
std::optional<CauseVerdict> Best(const Matcher& matcher, bool heads) {
  const Match* best = nullptr;
  std::map<Cause, Match> united;
  for (const Match& match : matcher.matches()) {
    const auto better = [&] {
      if (match.pieces() != best->pieces()) return match.pieces() > best->pieces();
      return match.cause < best->cause;
    };
    if (best == nullptr || better()) best = &match;
    Match& all = united[match.cause];
    const int64_t before = all.pieces();
    all.cause = match.cause;
    all.explains.resize(match.explains.size());
    for (size_t i = 0; i < match.explains.size(); ++i) {
      if (match.explains[i]) all.explains[i] = true;
    }
    // Rows of several positions may be explained in the same words.
    if (all.pieces() > before && all.says.find(match.says) == all.says.npos) {
      all.says += (all.says.empty() ? "" : ", or ") + match.says;
    }
  }
  if (best == nullptr) return std::nullopt;
  const auto all = static_cast<int64_t>(matcher.pieces());
  const Match* chosen = best;
  for (const auto& [cause, match] : united) {
    if (chosen->pieces() < all && match.pieces() > chosen->pieces()) chosen = &match;
  }
  return VerdictOf(chosen->cause, chosen->says, chosen->pieces(), matcher.pieces(), heads);
}

}  // namespace

std::string_view CauseName(Cause cause) {
  const auto found = std::ranges::find(kNames, cause, &NamedCause::cause);
  return found == kNames.end() ? "?" : found->name;
}

std::optional<Cause> FindCause(std::string_view name) {
  const auto found = std::ranges::find(kNames, name, &NamedCause::name);
  return found == kNames.end() ? std::nullopt : std::optional(found->cause);
}

std::span<const Cause> AllCauses() {
  static const std::vector<Cause> kCauses = [] {
    std::vector<Cause> causes;
    for (const NamedCause& named : kNames) causes.push_back(named.cause);
    return causes;
  }();
  return kCauses;
}

CauseVerdict ClassifyCause(const CausePlace& place, std::span<const CauseCandidate> candidates,
                           std::span<const KnownRow> known) {
  const size_t elements = place.is.size();
  LS_CHECK(elements > 0 && place.should.size() == elements, "{} elements of {}",
           place.should.size(), elements);
  LS_CHECK(place.width > 0 && elements % static_cast<size_t>(place.width) == 0,
           "{} elements in rows of {}", elements, place.width);
  LS_CHECK(place.bounds.empty() || place.bounds.size() == elements, "{} bounds",
           place.bounds.size());
  Matcher matcher(place);
  LS_CHECK(!matcher.differing().empty() || !place.bounds.empty(), "nothing differs");
  if (matcher.differing().empty()) return *CauseOfRounding(place, {});
  for (const CauseCandidate& candidate : candidates) matcher.Try(candidate);
  for (const KnownRow& row : known) matcher.Try(row);
  matcher.TryNeighbours();
  const bool heads = place.head_dim > 0;
  const std::optional<CauseVerdict> best = Best(matcher, heads);
  if (best && best->share == 1) return *best;
  if (auto rounding = CauseOfRounding(place, matcher.differing())) return *rounding;
  if (auto shape = CauseOfShape(place, matcher.differing())) return *shape;
  if (best && best->share >= 0.5) return *best;
  return {Cause::kUnknown,
          fmt::format("{} elements in {} {} differ, and no known mistake gives them",
                      matcher.differing().size(), matcher.pieces(), heads ? "heads" : "rows"),
          0};
}

}  // namespace lockstep
