#include "reports/bench/entries.h"

#include <algorithm>

namespace lockstep::internal {

std::string BenchWord(std::string text) {
  std::erase(text, ',');
  std::ranges::replace(text, ' ', '_');
  std::ranges::replace(text, '/', '_');
  return text;
}

std::vector<BenchEntry> AllBenchEntries(bool small) {
  std::vector<BenchEntry> all;
  for (const auto& entries :
       {EngineEntries, WriteEntries, AttentionEntries, KernelEntries, DataEntries}) {
    for (BenchEntry& entry : entries(small)) all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace lockstep::internal
