// The only source of its library that includes yaml-cpp.
#include "ci/tidy/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>

namespace lockstep::tidy {
namespace {

// yaml-cpp counts from 0, and has -1 for no place.
size_t LineOf(const YAML::Mark& mark) { return static_cast<size_t>(mark.line + 1); }

YamlNode NodeFrom(const YAML::Node& from, int depth) {
  constexpr int kDepthMax = 100;  // an alias of what holds it has no end
  if (depth > kDepthMax) throw YAML::Exception(from.Mark(), "is nested too deep");
  YamlNode node{.line = LineOf(from.Mark()), .key = {}, .text = {}, .children = {}};
  if (from.IsScalar()) {
    node.kind = YamlNode::Kind::kText;
    node.text = from.Scalar();
  } else if (from.IsSequence()) {
    node.kind = YamlNode::Kind::kList;
    for (const YAML::Node& item : from) node.children.push_back(NodeFrom(item, depth + 1));
  } else if (from.IsMap()) {
    node.kind = YamlNode::Kind::kMap;
    for (const auto& entry : from) {
      const YAML::Mark mark = entry.first.Mark();
      if (!entry.first.IsScalar()) throw YAML::Exception(mark, "a key is no text");
      const std::string& key = entry.first.Scalar();
      if (node.Find(key) != nullptr) {
        throw YAML::Exception(mark, fmt::format("the key '{}' is there twice", key));
      }
      YamlNode child = NodeFrom(entry.second, depth + 1);
      child.line = LineOf(mark);
      child.key = key;
      node.children.push_back(std::move(child));
    }
  }
  return node;
}

}  // namespace

const YamlNode* YamlNode::Find(std::string_view name) const {
  if (!is_map()) return nullptr;
  const auto found = std::ranges::find(children, name, &YamlNode::key);
  return found == children.end() ? nullptr : &*found;
}

YamlDocument ParseYaml(std::string_view text) {
  YamlDocument document;
  try {
    const std::vector<YAML::Node> all = YAML::LoadAll(std::string(text));
    if (all.size() != 1) {
      document.error = fmt::format("holds {} documents, not one", all.size());
      return document;
    }
    document.root = NodeFrom(all[0], 0);
  } catch (const YAML::Exception& error) {
    document.error = error.msg;
    document.error_line = LineOf(error.mark);
  }
  return document;
}

}  // namespace lockstep::tidy
