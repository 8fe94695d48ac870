#include "engine/tokenizer/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "caches/random.h"

namespace lockstep {
namespace {

using Ranks = std::map<std::pair<std::string, std::string>, uint32_t>;

// The rule in its own words: look at every adjacent pair, join the best, begin again.
std::vector<std::string> MergeSlowly(const std::string& text, const Ranks& ranks) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  while (true) {
    size_t best = symbols.size();
    uint32_t best_rank = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end()) continue;
      if (best == symbols.size() || found->second < best_rank) {
        best = i;
        best_rank = found->second;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

std::vector<std::string> MergeFast(const std::string& text, const Ranks& ranks, Merger* merger) {
  merger->Clear();
  for (size_t i = 0; i < text.size(); ++i) merger->Add(1, kNoToken);
  const auto stretch = [&](const Symbol& s) { return text.substr(s.begin, s.length); };
  merger->Run([&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    EXPECT_EQ(left.begin + left.length, right.begin);
    const auto found = ranks.find({stretch(left), stretch(right)});
    if (found == ranks.end()) return std::nullopt;
    return Merge{found->second, 7};
  });
  std::vector<std::string> symbols;
  merger->ForEach([&](const Symbol& symbol) {
    symbols.push_back(stretch(symbol));
    EXPECT_EQ(symbol.token, symbol.length > 1 ? 7 : kNoToken);
  });
  return symbols;
}

TEST(Merger, LowestRankFirstThenLeftmost) {
  Merger merger;
  using Parts = std::vector<std::string>;
  EXPECT_EQ(MergeFast("abc", {{{"a", "b"}, 1}, {{"b", "c"}, 0}}, &merger), Parts({"a", "bc"}));
  EXPECT_EQ(MergeFast("abc", {{{"a", "b"}, 0}, {{"b", "c"}, 0}}, &merger), Parts({"ab", "c"}));
  EXPECT_EQ(MergeFast("aaa", {{{"a", "a"}, 0}}, &merger), Parts({"aa", "a"}));
  EXPECT_EQ(MergeFast("", {}, &merger), Parts());
  EXPECT_EQ(MergeFast("a", {{{"a", "a"}, 0}}, &merger), Parts({"a"}));
}

// Random rules over two letters make every kind of overlap and of stale candidate.
TEST(Merger, EqualsTheRuleInItsOwnWords) {
  Random random(2);
  Merger merger;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> known = {"a", "b"};
    Ranks ranks;
    for (uint32_t i = 0; i < 12; ++i) {
      const std::string left = known[random.Below(static_cast<uint32_t>(known.size()))];
      const std::string right = known[random.Below(static_cast<uint32_t>(known.size()))];
      ranks.emplace(std::pair(left, right), random.Below(6));  // ties, and not in order of making
      known.push_back(left + right);
    }
    std::string text;
    for (uint32_t i = random.Below(40); i > 0; --i) text += random.Below(2) == 0 ? 'a' : 'b';
    ASSERT_EQ(MergeFast(text, ranks, &merger), MergeSlowly(text, ranks))
        << "round " << round << ": " << text;
  }
}

}  // namespace
}  // namespace lockstep
