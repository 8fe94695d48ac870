// One table of a TOML file, read strictly: a key that nobody asks for is an error, or it would be a
// wish that nobody reads. Includes toml++, which is slow to compile: for one source of a library.
#ifndef LOCKSTEP_GOLDEN_TOML_TABLE_H_
#define LOCKSTEP_GOLDEN_TOML_TABLE_H_

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "caches/error.h"
#include "golden/suggestion.h"

namespace lockstep {

class TomlTable {
 public:
  struct Range {
    int32_t low = 0;
    int32_t high = std::numeric_limits<int32_t>::max();
  };

  // `table`, `where` (the file, for messages) and `remedy` (where its format is described) outlive
  // this.
  TomlTable(const toml::table& table, std::string_view where, std::string_view remedy)
      : table_(table), where_(where), remedy_(remedy) {}

  // Error at the node, or at the table itself.
  [[noreturn]] void Fail(const toml::node* node, const std::string& what) const {
    const auto line = (node == nullptr ? table_.source() : node->source()).begin.line;
    throw Error({fmt::format("{}, line {}", where_, line), what, std::string(remedy_)});
  }

  // nullptr when the table has no such key.
  const toml::node* Find(std::string_view key) {
    known_.insert(key);
    return table_.get(key);
  }

  const toml::node& Require(std::string_view key) {
    const toml::node* node = Find(key);
    if (node == nullptr) Fail(nullptr, fmt::format("'{}' is missing", key));
    return *node;
  }

  // A text that is not empty.
  std::string Text(std::string_view key) {
    const toml::node& node = Require(key);
    const auto value = node.value_exact<std::string>();
    if (!value || value->empty()) Fail(&node, fmt::format("'{}' is no text", key));
    return *value;
  }

  int32_t Number(std::string_view key, const Range& range) {
    const toml::node& node = Require(key);
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < range.low || *value > range.high) {
      Fail(&node, fmt::format("'{}' is no whole number from {} to {}", key, range.low, range.high));
    }
    return static_cast<int32_t>(*value);
  }

  // One text or more, each once.
  std::vector<std::string> Texts(std::string_view key) {
    const toml::node& node = Require(key);
    std::vector<std::string> texts;
    if (node.as_array() == nullptr) Fail(&node, fmt::format("'{}' is no list of texts", key));
    for (const toml::node& item : *node.as_array()) {
      const auto value = item.value_exact<std::string>();
      if (!value) Fail(&item, fmt::format("'{}' is no list of texts", key));
      if (std::ranges::find(texts, *value) != texts.end()) {
        Fail(&item, fmt::format("'{}' has '{}' twice", key, *value));
      }
      texts.push_back(*value);
    }
    if (texts.empty()) Fail(&node, fmt::format("'{}' is empty", key));
    return texts;
  }

  // The tables [[key]], in their order; none when there is no such key.
  std::vector<TomlTable> Tables(std::string_view key) {
    std::vector<TomlTable> tables;
    const toml::node* node = Find(key);
    if (node == nullptr) return tables;
    const std::string what = fmt::format("'{0}' is no list of tables [[{0}]]", key);
    if (node->as_array() == nullptr) Fail(node, what);
    for (const toml::node& entry : *node->as_array()) {
      if (entry.as_table() == nullptr) Fail(&entry, what);
      tables.emplace_back(*entry.as_table(), where_, remedy_);
    }
    return tables;
  }

  // The table [key]; nothing when there is no such key.
  std::optional<TomlTable> Table(std::string_view key) {
    const toml::node* node = Find(key);
    if (node == nullptr) return std::nullopt;
    if (node->as_table() == nullptr) Fail(node, fmt::format("'{0}' is no table [{0}]", key));
    return TomlTable(*node->as_table(), where_, remedy_);
  }

  // Its keys, of a table whose author chooses them.
  std::vector<std::string_view> Keys() const {
    std::vector<std::string_view> keys;
    for (const auto& [key, node] : table_) keys.push_back(key.str());
    return keys;
  }

  size_t line() const { return table_.source().begin.line; }

  // Error at the first key that was not asked for.
  void NothingElse() const {
    for (const auto& [key, node] : table_) {
      if (known_.contains(key.str())) continue;
      Fail(&node, fmt::format("'{}' is not known here{}", key.str(), MeantText(key.str(), known_)));
    }
  }

 private:
  const toml::table& table_;
  std::string_view where_;
  std::string_view remedy_;
  std::set<std::string_view> known_;
};

// The whole file. Throws Error for text that is no TOML.
inline toml::table ParseToml(std::string_view text, std::string_view where) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw Error({fmt::format("{}, line {}", where, error.source().begin.line),
                 std::string(error.description()), "correct the TOML"});
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_TOML_TABLE_H_
