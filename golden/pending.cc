#include "golden/pending.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGolden = ".golden";
constexpr std::string_view kPending = ".golden.pending";

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string RowsOf(const GoldenName& golden) {
  return golden.file.substr(0, golden.file.size() - kGolden.size());
}

// Files below `folder`/<case>/ whose name ends so, as golden files are named.
void AddNames(const std::string& folder, std::string_view ending, std::set<GoldenName>* names) {
  std::error_code failed;
  for (const auto& scenario : fs::directory_iterator(folder, failed)) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(scenario.path(), ignored)) {
      const std::string file = entry.path().filename().string();
      if (!file.ends_with(ending)) continue;
      const std::string rows = file.substr(0, file.size() - ending.size());
      names->insert({scenario.path().filename().string(), rows + std::string(kGolden)});
    }
  }
  if (failed) {
    throw Error({folder, failed.message(),
                 "run this at the root of the tree, or give --folder with the cases' folder"});
  }
}

// The golden files that the cases of these names produce.
std::set<GoldenName> ProducedNames(const GoldenTree& tree, const std::set<GoldenName>& names) {
  std::set<std::string> cases;
  for (const GoldenName& golden : names) cases.insert(golden.scenario);
  std::set<GoldenName> produced;
  for (const std::string& name : cases) {
    if (!Exists(fmt::format("{}/{}/case.toml", tree.folder, name))) continue;
    for (const RowsGroup& group : GroupsOf(ReadScenario(tree.folder, name))) {
      produced.insert({name, group.rows + std::string(kGolden)});
    }
  }
  return produced;
}

// A golden file that is broken is what a pending one repairs.
std::optional<GoldenFile> ReadIfWhole(const std::string& path) {
  if (!Exists(path)) return std::nullopt;
  try {
    return ParseGoldenFile(ReadWholeTextFile(path), path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<PendingGolden> PendingAt(const GoldenPlace& place, bool produced,
                                       const Ledger& ledger) {
  const bool present = Exists(place.path);
  const std::string accepted = ledger.DigestOf(place.golden);
  PendingGolden pending{.place = place, .before = ReadIfWhole(place.path)};
  if (!produced) {
    pending.kind = PendingGolden::Kind::kRemoved;
    if (!present && accepted == kNoGolden) return std::nullopt;
    return pending;
  }
  const bool waits = Exists(place.pending_path);
  if (!waits && (!present || GoldenTextDigest(ReadWholeTextFile(place.path)) == accepted)) {
    return std::nullopt;
  }
  const std::string& path = waits ? place.pending_path : place.path;
  pending.kind = !waits    ? PendingGolden::Kind::kUnaccounted
                 : present ? PendingGolden::Kind::kChanged
                           : PendingGolden::Kind::kNew;
  pending.text = ReadWholeTextFile(path);
  pending.after = ParseGoldenFile(pending.text, path);
  if (waits && pending.before) pending.changes = CompareGoldens(*pending.before, *pending.after);
  return pending;
}

}  // namespace

std::vector<GoldenPlace> GoldenPlaces(const GoldenTree& tree, const Ledger& ledger) {
  std::set<GoldenName> names;
  AddNames(tree.folder, kGolden, &names);
  const bool apart = !tree.pending_dir.empty();
  if (!apart || Exists(tree.pending_dir)) {
    AddNames(apart ? tree.pending_dir : tree.folder, kPending, &names);
  }
  for (const LedgerEntry& entry : ledger.entries()) names.insert(entry.golden);
  std::vector<GoldenPlace> places;
  for (const GoldenName& golden : names) {
    places.push_back({golden, tree.GoldenPath(golden.scenario, RowsOf(golden)),
                      tree.PendingPath(golden.scenario, RowsOf(golden))});
  }
  return places;
}

std::vector<PendingGolden> FindPending(const GoldenTree& tree, const Ledger& ledger) {
  const std::vector<GoldenPlace> places = GoldenPlaces(tree, ledger);
  std::set<GoldenName> names;
  for (const GoldenPlace& place : places) names.insert(place.golden);
  const std::set<GoldenName> produced = ProducedNames(tree, names);
  std::vector<PendingGolden> all;
  for (const GoldenPlace& place : places) {
    auto pending = PendingAt(place, produced.contains(place.golden), ledger);
    if (pending) all.push_back(std::move(*pending));
  }
  return all;
}

bool ChoosesGolden(std::string_view name, const GoldenName& golden) {
  const std::string text = golden.Text();
  return name == golden.scenario || name == text ||
         name == std::string_view(text).substr(0, text.size() - kGolden.size());
}

std::vector<PendingGolden> ChoosePending(std::span<const PendingGolden> all,
                                         std::span<const std::string> names) {
  for (const std::string& name : names) {
    const auto chosen = [&](const PendingGolden& pending) {
      return ChoosesGolden(name, pending.place.golden);
    };
    if (std::ranges::any_of(all, chosen)) continue;
    throw Error({name, "nothing of this name waits for a decision",
                 "lockstep golden check writes pending files of what changed"});
  }
  std::vector<PendingGolden> chosen;
  for (const PendingGolden& pending : all) {
    const auto names_it = [&](const std::string& name) {
      return ChoosesGolden(name, pending.place.golden);
    };
    if (std::ranges::any_of(names, names_it)) chosen.push_back(pending);
  }
  return chosen;
}

}  // namespace lockstep
