// What a pending golden file would change, in words.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "golden/pending.h"

namespace lockstep {
namespace {

using Kind = PendingGolden::Kind;

constexpr size_t kTokensShown = 3;
constexpr size_t kValuesShown = 3;

// Digests are long, and only tell apart here: --detail and the files have all digits.
std::string Short(const std::string& value) {
  constexpr size_t kDigestSize = 32;
  constexpr size_t kShown = 8;
  const bool digest = value.size() == kDigestSize &&
                      value.find_first_not_of("0123456789abcdef") == std::string::npos;
  return digest ? value.substr(0, kShown) + ".." : value;
}

std::string ShortSentence(FactChange change) {
  change.old_value = Short(change.old_value);
  change.new_value = Short(change.new_value);
  return change.Sentence();
}

// "0-3, 5": the numbers of a sorted map's keys.
std::string Ranges(const std::map<int32_t, size_t>& counts) {
  std::string text;
  for (auto it = counts.begin(); it != counts.end();) {
    const int32_t first = it->first;
    int32_t last = first;
    for (++it; it != counts.end() && it->first == last + 1; ++it) ++last;
    if (!text.empty()) text += ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

struct Outline {
  std::map<int32_t, size_t> steps;
  std::map<int32_t, size_t> layers;
  std::vector<std::pair<std::string, size_t>> names;  // in the order in which they come up
  std::vector<const FactChange*> tokens;
  std::vector<const FactChange*> values;
};

bool IsOfHeader(const FactChange& change) { return change.place.op < 0; }

// What a changed line of the header means.
std::string NoteOn(const FactChange& change) {
  const std::string& name = change.place.name;
  if (name == "scenario") return "the case itself was changed (case.toml)";
  if (name == "model") return "the model is another one";
  return fmt::format("{} {} instead of {}", name, change.new_value, change.old_value);
}

Outline OutlineOf(const std::vector<FactChange>& changes) {
  Outline outline;
  for (const FactChange& change : changes) {
    if (IsOfHeader(change)) continue;
    const Fact& place = change.place;
    if (place.step >= 0) ++outline.steps[place.step];
    if (place.layer >= 0) ++outline.layers[place.layer];
    const std::string base(place.base_name());
    const auto it = std::ranges::find(outline.names, base, &std::pair<std::string, size_t>::first);
    if (it == outline.names.end()) {
      outline.names.emplace_back(base, 1);
    } else {
      ++it->second;
    }
    if (base == "top5") outline.tokens.push_back(&change);
    if (place.name.find('@') != std::string::npos) outline.values.push_back(&change);
  }
  return outline;
}

std::string NamesText(const Outline& outline) {
  std::string text;
  for (const auto& [name, count] : outline.names) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  }
  return text;
}

std::string SomeOf(const std::vector<const FactChange*>& changes, std::string_view topic,
                   size_t shown) {
  std::string text;
  for (size_t i = 0; i < std::min(shown, changes.size()); ++i) {
    text += TopicText(i == 0 ? topic : "", ShortSentence(*changes[i]));
  }
  if (changes.size() > shown) {
    text += TopicText("", fmt::format("and {} more", changes.size() - shown));
  }
  return text;
}

// Facts without sums, which say nothing of their own.
size_t FactCount(const std::optional<GoldenFile>& golden) {
  if (!golden) return 0;
  return static_cast<size_t>(
      std::ranges::count_if(golden->facts, [](const Fact& fact) { return fact.name != "sum"; }));
}

std::string KindText(const PendingGolden& pending) {
  switch (pending.kind) {
    case Kind::kNew:
      return fmt::format("new, {} facts", FactCount(pending.after));
    case Kind::kChanged:
      if (!pending.before) return "replaces a golden file that cannot be read";
      return fmt::format("{} of {} facts change",
                         std::ranges::count_if(pending.changes, std::not_fn(IsOfHeader)),
                         FactCount(pending.before));
    case Kind::kRemoved:
      return "no case produces it any more: accepting removes it";
    case Kind::kUnaccounted:
      return fmt::format("is in the tree, {} facts, and the ledger has no reason for it",
                         FactCount(pending.after));
  }
  return {};
}

// Null: the header alone changes, or nothing can be compared.
const FactChange* FirstComputed(const PendingGolden& pending) {
  const auto first = std::ranges::find_if_not(pending.changes, IsOfHeader);
  return first == pending.changes.end() ? nullptr : &*first;
}

}  // namespace

std::string TopicText(std::string_view topic, std::string_view text) {
  constexpr size_t kWidth = 89;  // beside the topic
  std::string lines;
  do {
    size_t size = text.size();
    if (size > kWidth) {
      size = text.rfind(' ', kWidth);
      if (size == text.npos) size = text.size();
    }
    lines += fmt::format("  {:<9}{}\n", lines.empty() ? topic : "", text.substr(0, size));
    text.remove_prefix(std::min(size + 1, text.size()));
  } while (!text.empty());
  return lines;
}

std::string PendingTitle(const PendingGolden& pending) {
  return fmt::format("{}: {}", pending.place.golden.Text(), KindText(pending));
}

std::string PendingText(const PendingGolden& pending, bool detail) {
  const std::vector<FactChange>& changes = pending.changes;
  if (changes.empty()) return {};
  std::string text;
  if (detail) {
    for (const FactChange& change : changes) text += fmt::format("  {}\n", change.Sentence());
    return text;
  }
  const Outline outline = OutlineOf(changes);
  for (const FactChange& change : changes) {
    if (IsOfHeader(change)) text += TopicText("note", NoteOn(change));
  }
  const FactChange* first = FirstComputed(pending);
  if (first == nullptr) return text;
  text += TopicText("first", ShortSentence(*first));
  if (!outline.steps.empty()) text += TopicText("steps", Ranges(outline.steps));
  if (!outline.layers.empty()) {
    text += TopicText("layers", Ranges(outline.layers));
  }
  text += TopicText("facts", NamesText(outline));
  text += SomeOf(outline.tokens, "tokens", kTokensShown);
  return text + SomeOf(outline.values, "values", kValuesShown);
}

std::string PendingMarkdown(std::span<const PendingGolden> all, const Acceptance& acceptance) {
  std::string text = fmt::format("## Golden files: {}\n\n",
                                 all.empty() ? "nothing changes" : fmt::format("{}", all.size()));
  if (all.empty()) return text;
  text += "| golden file | change | first place | facts that change |\n|---|---|---|---|\n";
  for (const PendingGolden& pending : all) {
    const FactChange* first = FirstComputed(pending);
    text += fmt::format("| `{}` | {} | {} | {} |\n", pending.place.golden.Text(), KindText(pending),
                        first == nullptr ? "" : fmt::format("`{}`", first->place.Place()),
                        NamesText(OutlineOf(pending.changes)));
  }
  for (const PendingGolden& pending : all) {
    const std::string details = PendingText(pending, false);
    if (details.empty()) continue;
    text += fmt::format("\n<details><summary>{}</summary>\n\n```\n{}```\n\n</details>\n",
                        pending.place.golden.Text(), details);
  }
  if (acceptance.reason.empty()) {
    return text + "\nNot accepted yet: the ledger has no reason for this.\n";
  }
  text += fmt::format("\nAccepted by {} on {}, arithmetic version {}:\n\n> {}\n", acceptance.author,
                      acceptance.date, acceptance.arithmetic, acceptance.reason);
  return acceptance.issue.empty() ? text : text + fmt::format(">\n> Issue: {}\n", acceptance.issue);
}

}  // namespace lockstep
