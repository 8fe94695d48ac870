// A document of YAML as plain data with its lines, for rules about what stands in it.
#ifndef LOCKSTEP_CI_TIDY_YAML_H_
#define LOCKSTEP_CI_TIDY_YAML_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tidy {

struct YamlNode {
  enum class Kind { kNothing, kText, kList, kMap };

  Kind kind = Kind::kNothing;
  size_t line = 0;   // from 1; of the key, where a map has it
  std::string key;   // where a map has it
  std::string text;  // of kText, without its quotes
  std::vector<YamlNode> children;

  bool is_text() const { return kind == Kind::kText; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }

  // What `name` stands for in a map; nullptr when there is none, or this is no map.
  const YamlNode* Find(std::string_view name) const;
};

struct YamlDocument {
  YamlNode root;
  std::string error;      // empty: it can be read, and each key of a map is there once
  size_t error_line = 0;  // from 1; 0: of the whole
};

YamlDocument ParseYaml(std::string_view text);

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_YAML_H_
