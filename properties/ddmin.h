// The deletion part of delta debugging over any list.
//   Zeller, Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002.
#ifndef LOCKSTEP_PROPERTIES_DDMIN_H_
#define LOCKSTEP_PROPERTIES_DDMIN_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

// Leaves out chunks of falling size, from the end (later items are the likeliest to be needless),
// until no single item can go. `still(candidate)` is nullopt when the finding is gone, else how
// many of the candidate's first items it needs at most: the rest plays no part. Never tries an
// empty list.
template <typename Item, typename Still>
void RemoveNeedless(std::vector<Item>* items, Still&& still) {
  size_t before;
  do {
    before = items->size();
    for (size_t chunk = std::max<size_t>(items->size() / 2, 1); chunk > 0; chunk /= 2) {
      for (size_t end = items->size(); end > 0;) {
        const size_t begin = end > chunk ? end - chunk : 0;
        std::vector<Item> candidate = *items;
        candidate.erase(candidate.begin() + static_cast<std::ptrdiff_t>(begin),
                        candidate.begin() + static_cast<std::ptrdiff_t>(end));
        std::optional<size_t> needed;
        if (!candidate.empty()) needed = still(std::as_const(candidate));
        if (needed) {
          candidate.resize(std::min(*needed, candidate.size()));
          *items = std::move(candidate);
        }
        end = std::min(items->size(), begin);
      }
    }
  } while (items->size() < before);
}

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_DDMIN_H_
