// Which of the known names somebody who wrote another may have meant.
#ifndef LOCKSTEP_GOLDEN_SUGGESTION_H_
#define LOCKSTEP_GOLDEN_SUGGESTION_H_

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// How many insertions, deletions and exchanges of one character make `a` into `b` (Levenshtein
// 1966).
inline size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // of the first i characters of a, to each begin of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, exchanged});
    }
  }
  return row.back();
}

// The one of `names` that somebody who wrote `word` may have meant, or nothing.
template <typename Names>
std::string_view Suggestion(std::string_view word, const Names& names) {
  std::string_view best;
  size_t least = std::max<size_t>(word.size() / 2, 1) + 1;
  for (const std::string_view name : names) {
    const size_t distance = EditDistance(word, name);
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return best;
}

// The same as the end of a message: "; is 'paths' meant?", or "".
template <typename Names>
std::string MeantText(std::string_view word, const Names& names) {
  const std::string_view meant = Suggestion(word, names);
  return meant.empty() ? "" : "; is '" + std::string(meant) + "' meant?";
}

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_SUGGESTION_H_
