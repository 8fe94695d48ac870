#include "ci/mutation/fault.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "caches/error.h"
#include "caches/file_io.h"
#include "golden/cause.h"
#include "golden/facts.h"

namespace lockstep::mutation {
namespace {

std::string Where(const std::string& path, const toml::source_region& source) {
  return fmt::format("{}:{}", path, source.begin.line);
}

// The tables `[[name]]` of one file. Other tables and keys are an error: a misspelt one would be
// a fault that nobody plants.
template <typename Read>
void ReadTables(const std::string& path, std::string_view name, Read&& read) {
  toml::table file;
  try {
    file = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    throw Error(
        {Where(path, error.source()), std::string(error.description()), "correct the TOML"});
  }
  for (const auto& [key, node] : file) {
    const toml::array* tables = node.as_array();
    if (key.str() != name || tables == nullptr) {
      throw Error({Where(path, node.source()), fmt::format("'{}' is not known here", key.str()),
                   fmt::format("the file holds tables [[{}]]", name)});
    }
    for (const toml::node& entry : *tables) {
      if (entry.as_table() == nullptr) {
        throw Error(
            {Where(path, entry.source()), "is no table", fmt::format("write [[{}]]", name)});
      }
      read(*entry.as_table());
    }
  }
}

using Fields = std::vector<std::pair<std::string_view, std::string*>>;

void ReadFields(const std::string& path, const toml::table& table, const Fields& fields,
                const Fields& optional = {}) {
  for (const auto& [name, target] : optional) {
    if (const auto value = table[name].value<std::string>()) *target = *value;
  }
  for (const auto& [name, target] : fields) {
    const toml::node* node = table.get(name);
    const auto value = node == nullptr ? std::nullopt : node->value<std::string>();
    if (!value) {
      throw Error({Where(path, table.source()), fmt::format("has no text '{}'", name),
                   "properties/faults/README.md gives the fields"});
    }
    *target = *value;
  }
  for (const auto& [key, node] : table) {
    const auto known = [&](const auto& field) { return field.first == key.str(); };
    if (std::ranges::any_of(fields, known)) continue;
    if (std::ranges::any_of(optional, known) && node.is_string()) continue;
    throw Error({Where(path, node.source()), fmt::format("the field '{}' is not known", key.str()),
                 "properties/faults/README.md gives the fields"});
  }
}

std::vector<std::string> TomlFiles(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".toml") paths.push_back(entry.path().string());
  }
  if (failed) throw Error({folder, failed.message(), "give the folder of the catalogue"});
  std::ranges::sort(paths);
  return paths;
}

constexpr std::string_view kEquivalentFile = "equivalent.toml";
constexpr size_t kColumnsMax = 100;  // as ci/tidy has it

// The longest line that `after` makes; the lint would see it, whatever else the edit makes wrong.
size_t LongestNewLine(const SourceEdit& edit, std::string_view edited) {
  const size_t at = edited.find(edit.after);
  if (edit.after.empty() || at == edited.npos) return 0;
  size_t begin = edited.rfind('\n', at);
  begin = begin == edited.npos ? 0 : begin + 1;
  size_t longest = 0;
  for (const size_t last = at + edit.after.size(); begin < last;) {
    const size_t end = std::min(edited.find('\n', begin), edited.size());
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  return longest;
}

}  // namespace

std::vector<Fault> ReadFaults(const std::string& folder) {
  std::vector<Fault> faults;
  for (const std::string& path : TomlFiles(folder)) {
    if (path.ends_with(kEquivalentFile)) continue;
    ReadTables(path, "fault", [&](const toml::table& table) {
      Fault fault;
      ReadFields(path, table,
                 {{"name", &fault.name},
                  {"class", &fault.class_name},
                  {"stands_for", &fault.stands_for},
                  {"says", &fault.says},
                  {"file", &fault.edit.file},
                  {"before", &fault.edit.before},
                  {"after", &fault.edit.after},
                  {"catcher", &fault.catcher}},
                 {{"stage", &fault.stage}, {"layer", &fault.layer}, {"cause", &fault.cause}});
      faults.push_back(std::move(fault));
    });
  }
  return faults;
}

std::vector<EquivalentMutant> ReadEquivalentMutants(const std::string& folder) {
  std::vector<EquivalentMutant> mutants;
  const std::string path = folder + "/" + std::string(kEquivalentFile);
  if (!std::filesystem::exists(path)) return mutants;
  ReadTables(path, "equivalent", [&](const toml::table& table) {
    EquivalentMutant mutant;
    ReadFields(path, table,
               {{"file", &mutant.file},
                {"line", &mutant.line},
                {"after", &mutant.after},
                {"why", &mutant.why}});
    mutants.push_back(std::move(mutant));
  });
  return mutants;
}

std::string ApplyEdit(const SourceEdit& edit, std::string_view text) {
  const size_t at = edit.before.empty() ? text.npos : text.find(edit.before);
  const size_t again = at == text.npos ? at : text.find(edit.before, at + 1);
  if (at == text.npos || again != text.npos) {
    throw Error({edit.file,
                 fmt::format("'{}' is there {}", edit.before,
                             at == text.npos ? "not at all" : "more than once"),
                 "let 'before' be text that the file has exactly once"});
  }
  if (edit.before == edit.after) {
    throw Error({edit.file, fmt::format("'{}' replaced by itself", edit.before), "change it"});
  }
  std::string edited(text.substr(0, at));
  edited += edit.after;
  edited += text.substr(at + edit.before.size());
  return edited;
}

std::vector<std::string> CheckCatalogue(const std::vector<Fault>& faults, const std::string& root) {
  std::vector<std::string> problems;
  std::set<std::string> names;
  std::map<std::string_view, int> counts;
  for (const FaultClass& known : FaultClasses()) counts[known.name] = 0;
  for (const Fault& fault : faults) {
    if (!names.insert(fault.name).second) {
      problems.push_back(fmt::format("{}: the name is used twice", fault.name));
    }
    if (fault.stands_for.empty() || fault.says.empty() || fault.catcher.empty()) {
      problems.push_back(fmt::format("{}: an empty field", fault.name));
    }
    if (fault.stage.empty() != fault.cause.empty()) {
      problems.push_back(fmt::format("{}: a stage without a cause, or the reverse", fault.name));
    }
    if (!fault.stage.empty() && !IsFactName(fault.stage)) {
      problems.push_back(fmt::format("{}: there is no stage '{}'", fault.name, fault.stage));
    }
    if (!fault.cause.empty() && !FindCause(fault.cause)) {
      problems.push_back(fmt::format("{}: there is no cause '{}'", fault.name, fault.cause));
    }
    if (!counts.contains(fault.class_name)) {
      problems.push_back(fmt::format("{}: there is no class {}", fault.name, fault.class_name));
    } else {
      ++counts[fault.class_name];
    }
    try {
      const std::string edited =
          ApplyEdit(fault.edit, ReadWholeTextFile(root + "/" + fault.edit.file));
      if (LongestNewLine(fault.edit, edited) > kColumnsMax) {
        problems.push_back(fmt::format("{}: a line of more than {} columns, which the lint catches",
                                       fault.name, kColumnsMax));
      }
    } catch (const Error& error) {
      problems.push_back(fmt::format("{}: {}", fault.name, error.what()));
    }
  }
  for (const FaultClass& known : FaultClasses()) {
    if (counts[known.name] >= known.faults_min) continue;
    problems.push_back(fmt::format("class {} ({}): {} faults, {} wanted", known.name, known.meaning,
                                   counts[known.name], known.faults_min));
  }
  return problems;
}

const std::vector<FaultClass>& FaultClasses() {
  static const std::vector<FaultClass> kClasses = {
      {"F01", "block boundary, slot search", 2},
      {"F02", "capacity, maximum length", 2},
      {"F03", "chunked prefill, attention length", 2},
      {"F04", "last token, gaps", 2},
      {"F05", "commit by layer or region", 2},
      {"F06", "speculative rollback", 2},
      {"F07", "truncate, clear, atomicity", 2},
      {"F08", "rotary position", 2},
      {"F09", "in-place writes: aliasing, overrun", 2},
      {"F10", "sliding window", 2},
      {"F11", "quantized row layout", 2},
      {"F12", "unwritten and stale rows", 2},
      {"F13", "keys and digests that forget a field", 2},
      {"F14", "references, copy-on-write, allocator", 2},
      {"F15", "32-bit indices", 2},
      {"F16", "races, partition among threads", 2},
      {"F17", "empty, duplicate, falling, negative positions", 2},
      {"F18", "several sequences", 2},
      {"F19", "save and restore", 2},
      {"F20", "codecs, instruction sets", 2},
      {"F20b", "head mapping, sizes", 2},
      {"F21", "meaning of metadata, tokenizer", 2},
      {"F22", "malformed model files", 2},
      {"F23", "adapters", 2},
      {"F24", "drawing, verifying drafts", 2},
      {"F25", "scheduling requests", 2},
      {"S1", "a path compared with itself", 1},
      {"S2", "an assertion about nothing", 1},
      {"S3", "a window of 0 where windows are tested", 1},
      {"S4", "equal keys and values", 1},
      {"S5", "equal data in both forks", 1},
      {"S6", "only the first of a batch is looked at", 1},
  };
  return kClasses;
}

}  // namespace lockstep::mutation
