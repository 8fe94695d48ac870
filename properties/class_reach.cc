#include "properties/class_reach.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/check.h"

namespace lockstep {
namespace {

constexpr int32_t kLongestMax = 20;  // no script's max_length is much longer
constexpr size_t kColumns = 100;

// A window that some script can overfill: an exact one, a ring's own, or those that the builder
// gives to rings without.
bool HasShortWindow(const CacheSpec& spec) {
  if (spec.undo_rows > 0 && spec.windows.empty()) return true;
  const auto is_short = [](int32_t window) { return window > 0 && window < kLongestMax; };
  return is_short(spec.window) || std::ranges::any_of(spec.windows, is_short);
}

// "1234", "56k", "7M": enough to see what is rare.
std::string Few(int64_t count) {
  if (count < 10'000) return fmt::format("{}", count);
  return count < 10'000'000 ? fmt::format("{}k", count / 1000)
                            : fmt::format("{}M", count / 1'000'000);
}

void AddLine(std::string_view title, const std::vector<std::string>& items, std::string* text) {
  std::string line = fmt::format("  {}:", title);
  for (const std::string& item : items) {
    if (line.size() + 1 + item.size() > kColumns) {
      *text += line + '\n';
      line = "   ";
    }
    line += ' ' + item;
  }
  *text += line + '\n';
}

}  // namespace

bool CanReach(PositionClass position_class, const CacheSpec& spec) {
  switch (position_class) {
    case PositionClass::kCrossesBlock:
    case PositionClass::kEndsAtBlock:
    case PositionClass::kEndsBeforeBlock:
    case PositionClass::kEndsPastBlock:
    case PositionClass::kBeginsAtBlock:
      return spec.block_size > 0;
    case PositionClass::kLongerThanWindow:
      return HasShortWindow(spec);
    default:
      return true;
  }
}

bool CanReach(OperationClass operation_class, const CacheSpec& spec, const ScriptSubject& subject) {
  switch (operation_class) {
    case OperationClass::kRedo:
      return true;
    case OperationClass::kInterleaved:
    case OperationClass::kRewriteAfterFork:
      return subject.forks;
    case OperationClass::kForkOverReservation:
    case OperationClass::kEndOverReservation:
      return spec.grants_host_slots && subject.forks;
    case OperationClass::kRestoreOverReservation:
      return spec.grants_host_slots && subject.saves;
    case OperationClass::kExhaustedOverReservation:  // pools of one block are taken by the slot
      return spec.grants_host_slots && spec.block_size > 0 && spec.block_size < 16 &&
             spec.plugin == nullptr;
    default:
      return spec.grants_host_slots;
  }
}

std::vector<std::string_view> MissedClasses(const ScriptCounts& counts,
                                            const std::vector<std::string>& caches,
                                            const std::vector<ScriptSubject>& subjects) {
  LS_CHECK(caches.size() == subjects.size(), "{} caches, {} subjects", caches.size(),
           subjects.size());
  ScriptCounts reachable;
  for (size_t cache = 0; cache < caches.size(); ++cache) {
    const CacheSpec spec = ParseCacheSpec(caches[cache]);
    for (size_t i = 0; i < kPositionClasses; ++i) {
      reachable.positions[i] += CanReach(static_cast<PositionClass>(i), spec) ? 1 : 0;
    }
    for (size_t i = 0; i < kOperationClasses; ++i) {
      const auto operation_class = static_cast<OperationClass>(i);
      reachable.sequences[i] += CanReach(operation_class, spec, subjects[cache]) ? 1 : 0;
    }
  }
  std::vector<std::string_view> missed;
  for (size_t i = 0; i < kPositionClasses; ++i) {
    if (counts.positions[i] > 0 || reachable.positions[i] == 0) continue;
    missed.push_back(PositionClassName(static_cast<PositionClass>(i)));
  }
  for (size_t i = 0; i < kOperationClasses; ++i) {
    if (counts.sequences[i] > 0 || reachable.sequences[i] == 0) continue;
    missed.push_back(OperationClassName(static_cast<OperationClass>(i)));
  }
  return missed;
}

std::string ClassTable(const ScriptCounts& counts) {
  std::vector<std::string> positions, sequences;
  for (size_t i = 0; i < kPositionClasses; ++i) {
    positions.push_back(fmt::format("{} {}", PositionClassName(static_cast<PositionClass>(i)),
                                    Few(counts.positions[i])));
  }
  for (size_t i = 0; i < kOperationClasses; ++i) {
    sequences.push_back(fmt::format("{} {}", OperationClassName(static_cast<OperationClass>(i)),
                                    Few(counts.sequences[i])));
  }
  for (std::vector<std::string>* items : {&positions, &sequences}) {
    for (size_t i = 0; i + 1 < items->size(); ++i) (*items)[i] += ',';
  }
  std::string text;
  AddLine("positions", positions, &text);
  AddLine("sequences of operations", sequences, &text);
  return text;
}

}  // namespace lockstep
