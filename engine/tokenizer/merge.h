// Byte-pair merging: both tokenizers cut a text into symbols and then, again and again, join the
// adjacent pair of the lowest rank, the leftmost one among equals.
//
// A priority queue over a linked list of symbols: O(n log n), for one unbroken text of any length.
// Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_MERGE_H_
#define LOCKSTEP_ENGINE_TOKENIZER_MERGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

inline constexpr int32_t kNoToken = -1;
inline constexpr uint32_t kNoSymbol = UINT32_MAX;

// A stretch [begin, begin + length) of the text. Adjacent symbols are adjacent in the text.
struct Symbol {
  uint32_t begin = 0;
  uint32_t length = 0;  // 0: merged into a symbol to its left
  uint32_t previous = kNoSymbol;
  uint32_t next = kNoSymbol;
  int32_t token = kNoToken;  // kNoToken: the stretch is no token
};

struct Merge {
  uint32_t rank = 0;
  int32_t token = kNoToken;  // what the pair becomes
};

// Keeps its buffers, so that many short texts cost no allocation each.
class Merger {
 public:
  // Forgets the symbols of the last text.
  void Clear() {
    symbols_.clear();
    queue_.clear();
  }

  // Appends a symbol of `length` bytes after the last one. REQUIRES: length > 0.
  void Add(uint32_t length, int32_t token) {
    const uint32_t index = static_cast<uint32_t>(symbols_.size());
    Symbol symbol{.length = length, .token = token};
    if (index > 0) {
      symbols_.back().next = index;
      symbol.previous = index - 1;
      symbol.begin = symbols_.back().begin + symbols_.back().length;
    }
    symbols_.push_back(symbol);
  }

  // Merges until no pair is left. `find(left, right)` gives std::optional<Merge> for two adjacent
  // symbols; it must depend on their stretches alone.
  template <typename Find>
  void Run(const Find& find) {
    for (uint32_t i = 1; i < symbols_.size(); ++i) Propose(find, i - 1, i);
    std::make_heap(queue_.begin(), queue_.end(), After);
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), After);
      const Candidate best = queue_.back();
      queue_.pop_back();
      if (!IsCurrent(best)) continue;
      Join(best);
      Symbol& joined = symbols_[best.left];
      const size_t before = queue_.size();
      if (joined.previous != kNoSymbol) Propose(find, joined.previous, best.left);
      if (joined.next != kNoSymbol) Propose(find, best.left, joined.next);
      for (size_t i = before; i < queue_.size(); ++i) {
        std::push_heap(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(i) + 1, After);
      }
    }
  }

  // Calls visit(symbol) for what is left, in the order of the text.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const Symbol& symbol : symbols_) {
      if (symbol.length > 0) visit(symbol);
    }
  }

 private:
  struct Candidate {
    uint32_t rank = 0;
    uint32_t left = 0;
    uint32_t length = 0;  // of both together, when proposed
    int32_t token = kNoToken;
  };

  static bool After(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  template <typename Find>
  void Propose(const Find& find, uint32_t left, uint32_t right) {
    const std::optional<Merge> merge = find(symbols_[left], symbols_[right]);
    if (!merge) return;
    queue_.push_back(
        {merge->rank, left, symbols_[left].length + symbols_[right].length, merge->token});
  }

  // A symbol only ever grows to the right, and every growth proposes its pairs anew: a candidate is
  // out of date when its left symbol is gone or the pair has another length now.
  bool IsCurrent(const Candidate& candidate) const {
    const Symbol& left = symbols_[candidate.left];
    return left.length > 0 && left.next != kNoSymbol &&
           left.length + symbols_[left.next].length == candidate.length;
  }

  void Join(const Candidate& candidate) {
    Symbol& left = symbols_[candidate.left];
    Symbol& right = symbols_[left.next];
    left.length = candidate.length;
    left.token = candidate.token;
    left.next = right.next;
    if (right.next != kNoSymbol) symbols_[right.next].previous = candidate.left;
    right.length = 0;
  }

  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;  // a heap, except while Run fills it
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_MERGE_H_
