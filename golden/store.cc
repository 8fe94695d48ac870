#include "golden/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "caches/error.h"
#include "caches/file_io.h"
#include "engine/transformer.h"
#include "properties/engine_step.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGolden = ".golden";
constexpr std::string_view kPending = ".golden.pending";
constexpr std::string_view kCaseFile = "case.toml";

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    names.push_back(entry.path().filename().string());
  }
  if (failed) {
    throw Error({folder, failed.message(),
                 "run this at the root of the tree, or give --folder with the cases' folder"});
  }
  std::ranges::sort(names);
  return names;
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

class Checker {
 public:
  explicit Checker(const CheckOptions& options) : options_(options), tree_(options.tree) {}

  std::vector<GoldenStatus> Check() {
    const std::vector<std::string> all = NamesIn(tree_.folder);
    for (const std::string& name : options_.cases) {
      if (std::ranges::find(all, name) != all.end()) continue;
      throw Error({fmt::format("case {}", name), fmt::format("is not in {}", tree_.folder),
                   "lockstep golden list names the cases"});
    }
    for (const std::string& name : all) {
      const bool wanted =
          options_.cases.empty() || std::ranges::find(options_.cases, name) != options_.cases.end();
      if (wanted) CheckCase(name);
    }
    CheckLedger();
    return std::move(found_);
  }

 private:
  GoldenStatus& Find(const std::string& name, std::string_view file, GoldenState state,
                     std::string detail) {
    found_.push_back(
        {.scenario = name, .file = std::string(file), .state = state, .detail = std::move(detail)});
    return found_.back();
  }

  void CheckCase(const std::string& name) {
    const std::string folder = fmt::format("{}/{}", tree_.folder, name);
    if (!fs::is_directory(folder)) {
      Find(name, "", GoldenState::kStray, "is in no case's folder");
      return;
    }
    const std::vector<std::string> files = NamesIn(folder);
    std::vector<RowsGroup> groups;
    bool readable = true;
    if (std::ranges::find(files, kCaseFile) != files.end()) {
      try {
        const Scenario scenario = ReadScenario(tree_.folder, name);
        groups = GroupsOf(scenario);
        CheckGroups(scenario, groups);
      } catch (const Error& error) {
        readable = false;
        Find(name, kCaseFile, GoldenState::kUnreadable, error.what());
      }
    }
    // Without its scenario nobody knows which files there have to be.
    if (!readable) return;
    for (const std::string& file : files) CheckFile(name, file, groups);
  }

  // A file of a case's folder that no recording asked for.
  void CheckFile(const std::string& name, const std::string& file,
                 std::span<const RowsGroup> groups) {
    if (file == kCaseFile) return;
    for (const std::string_view ending : {kGolden, kPending}) {
      if (!file.ends_with(ending)) continue;
      const std::string rows = file.substr(0, file.size() - ending.size());
      if (std::ranges::find(groups, rows, &RowsGroup::rows) != groups.end()) return;
      if (ending == kGolden) {
        Find(name, file, GoldenState::kObsolete, "no cache of a case stores rows in this way");
        return;
      }
    }
    Find(name, file, GoldenState::kStray, "nobody reads it");
  }

  // A file that fails anyhow needs no second reason to.
  void CheckLedger() {
    const Ledger ledger = Ledger::Read(tree_.LedgerPath());
    for (LedgerFinding& finding : CompareWithLedger(ledger, GoldenDigests(tree_))) {
      const GoldenName& golden = finding.golden;
      const auto found = std::ranges::find_if(found_, [&](const GoldenStatus& status) {
        return status.scenario == golden.scenario && status.file == golden.file;
      });
      if (found == found_.end()) {
        const bool unreadable = std::ranges::any_of(found_, [&](const GoldenStatus& status) {
          return status.scenario == golden.scenario && status.file == kCaseFile;
        });
        const bool all = options_.cases.empty() && options_.cache.empty();
        if (all && !unreadable)
          Find(golden.scenario, golden.file, GoldenState::kUnaccounted, finding.sentence);
      } else if (HoldsWith(found->state)) {
        found->state = GoldenState::kUnaccounted;
        found->detail = std::move(finding.sentence);
      }
    }
  }

  // Of the group, what is to be run.
  RowsGroup Wanted(const RowsGroup& group) const {
    if (options_.record.device != nullptr) {
      return {group.rows, DeviceCachesLike(ParseCacheSpec(group.caches.front()))};
    }
    if (options_.cache.empty()) return group;
    RowsGroup wanted{group.rows, {}};
    if (std::ranges::find(group.caches, options_.cache) != group.caches.end()) {
      wanted.caches = {options_.cache};
    }
    return wanted;
  }

  void CheckGroups(const Scenario& scenario, std::span<const RowsGroup> groups) {
    const auto missing = WhyNotHere(scenario, options_.record.models);
    for (const RowsGroup& group : groups) {
      const RowsGroup wanted = Wanted(group);
      if (wanted.caches.empty() && options_.record.device == nullptr) continue;
      if (options_.on_progress) {
        options_.on_progress(fmt::format("{}/{}{}", scenario.name, group.rows, kGolden));
      }
      CheckGroup(scenario, wanted, missing);
    }
  }

  void CheckGroup(const Scenario& scenario, const RowsGroup& group,
                  const std::optional<std::string>& not_here) {
    const std::string path = tree_.GoldenPath(scenario.name, group.rows);
    const bool present = Exists(path);
    GoldenStatus status{.scenario = scenario.name,
                        .file = group.rows + std::string(kGolden),
                        .caches = group.caches};
    std::optional<GoldenFile> golden;
    try {
      if (present) golden = ParseGoldenFile(ReadWholeTextFile(path), path);
    } catch (const Error& error) {
      status.state = GoldenState::kUnreadable;
      status.detail = error.what();
    }
    const auto why_not = not_here ? not_here : WhyNotOnDevice(group, golden);
    if (why_not) {
      if (present && golden) Skip(scenario, *golden, *why_not, &status);
      if (!present) {
        status.state = GoldenState::kMissing;
        status.detail = "there is no golden file, and " + *why_not;
      }
      found_.push_back(std::move(status));
      return;
    }
    try {
      Compare(golden, RecordGroup(scenario, group, options_.record), &status);
    } catch (const UnsupportedOnDevice& error) {
      if (!golden) throw;
      Skip(scenario, *golden, error.parts().what, &status);
    }
    found_.push_back(std::move(status));
  }

  // Where a device is asked for: why no cache there can do what was recorded.
  std::optional<std::string> WhyNotOnDevice(const RowsGroup& group,
                                            const std::optional<GoldenFile>& golden) const {
    if (options_.record.device == nullptr) return std::nullopt;
    if (group.caches.empty()) return "no cache on a device keeps such rows";
    const auto exhausted = [](const Fact& fact) {
      return fact.name == "outcome" && fact.value == StepOutcomeName(StepOutcome::kExhausted);
    };
    if (golden && std::ranges::any_of(golden->facts, exhausted)) {
      return "its pool runs out of blocks, and caches on a device have none";
    }
    return std::nullopt;
  }

  // What can be said without the model.
  static void Skip(const Scenario& scenario, const GoldenFile& golden, const std::string& why,
                   GoldenStatus* status) {
    const bool same = golden.header.scenario == ScenarioDigest(scenario);
    status->state = same ? GoldenState::kSkipped : GoldenState::kChanged;
    status->detail = same ? why : "the case is no longer what was recorded, and " + why;
  }

  // Without what a recording on one cache, on the legacy path or on a device cannot have.
  GoldenFile Comparable(const GoldenFile& golden, const GoldenStatus& status) const {
    if (options_.record.legacy || options_.record.device != nullptr) {
      return FactsOfCache(golden, {});
    }
    return options_.cache.empty() ? golden : FactsOfCache(golden, status.caches.front());
  }

  void Compare(const std::optional<GoldenFile>& golden, const MergedGolden& merged,
               GoldenStatus* status) {
    const bool whole =
        options_.cache.empty() && !options_.record.legacy && options_.record.device == nullptr;
    const std::string pending =
        tree_.PendingPath(status->scenario, status->file.substr(0, status->file.rfind('.')));
    if (!merged.disagreements.empty()) {
      status->state = GoldenState::kDisagree;
      status->changes = merged.disagreements;
      status->detail =
          fmt::format("{} and {} give different facts", status->caches.front(), merged.cache);
    } else if (golden) {
      status->changes = CompareGoldens(Comparable(*golden, *status), merged.golden);
      if (!status->changes.empty()) status->state = GoldenState::kChanged;
      if (!status->changes.empty()) status->detail = DetailOf(*status);
      if (options_.record.device != nullptr && !merged.on_device) {
        status->state = GoldenState::kChanged;
        status->detail = "no layer ran on the device, so nothing was checked";
      }
    } else if (status->state != GoldenState::kUnreadable) {
      status->state = GoldenState::kMissing;
      status->detail = "there is no golden file yet";
    }
    if (whole && options_.write_pending) WritePending(pending, merged, *status);
    if (Exists(pending)) status->pending = pending;
  }

  static std::string DetailOf(const GoldenStatus& status) {
    const size_t more = status.changes.size() - 1;
    const std::string first = status.changes.front().Sentence();
    return more == 0 ? first : fmt::format("{}; {} more follow", first, more);
  }

  static void WritePending(const std::string& pending, const MergedGolden& merged,
                           const GoldenStatus& status) {
    std::error_code failed;
    if (HoldsWith(status.state)) {
      fs::remove(pending, failed);
    } else if (status.state != GoldenState::kDisagree) {
      fs::create_directories(fs::path(pending).parent_path(), failed);
      WriteWholeTextFile(pending, merged.golden.Text());
    }
  }

  const CheckOptions& options_;
  const GoldenTree& tree_;
  std::vector<GoldenStatus> found_;
};

}  // namespace

std::vector<std::string> GoldenTree::CaseNames() const {
  std::vector<std::string> names = NamesIn(folder);
  std::erase_if(names, [&](const std::string& name) {
    return !Exists(fmt::format("{}/{}/{}", folder, name, kCaseFile));
  });
  return names;
}

std::string GoldenTree::GoldenPath(std::string_view name, std::string_view rows) const {
  return fmt::format("{}/{}/{}{}", folder, name, rows, kGolden);
}

std::string GoldenTree::PendingPath(std::string_view name, std::string_view rows) const {
  const std::string& base = pending_dir.empty() ? folder : pending_dir;
  return fmt::format("{}/{}/{}{}", base, name, rows, kPending);
}

std::string GoldenTree::LedgerPath() const {
  const fs::path path = fs::path(folder + "/").lexically_normal().parent_path();
  return (path.parent_path() / "ledger.jsonl").string();
}

std::string_view GoldenStateName(GoldenState state) {
  constexpr std::array<std::string_view, 9> kNames = {"equal",      "skipped",  "changed",
                                                      "missing",    "disagree", "obsolete",
                                                      "unreadable", "stray",    "unaccounted"};
  return kNames.at(static_cast<size_t>(state));
}

bool HoldsWith(GoldenState state) {
  return state == GoldenState::kEqual || state == GoldenState::kSkipped;
}

std::vector<GoldenStatus> CheckGoldens(const CheckOptions& options) {
  return Checker(options).Check();
}

std::map<GoldenName, std::string> GoldenDigests(const GoldenTree& tree) {
  std::map<GoldenName, std::string> digests;
  for (const std::string& name : NamesIn(tree.folder)) {
    const std::string folder = fmt::format("{}/{}", tree.folder, name);
    if (!fs::is_directory(folder)) continue;
    for (const std::string& file : NamesIn(folder)) {
      if (!file.ends_with(kGolden)) continue;
      digests[{name, file}] = GoldenTextDigest(ReadWholeTextFile(folder + "/" + file));
    }
  }
  return digests;
}

bool InContinuousIntegration() {
  const char* value = std::getenv("CI");
  return value != nullptr && *value != '\0';
}

}  // namespace lockstep
