#include "engine/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/gguf/cursor.h"
#include "engine/tokenizer/utf8.h"

namespace lockstep {
namespace {

// The published expressions, with two departures that keep their meaning. \s is spelled as the
// Unicode property that it means to the engines they were written for: PCRE2's \s also takes
// U+180E, which is no white space. Case-insensitive contractions are spelled out, as llama.cpp has
// them: full case folding would let U+017F stand for an s.
#define SPACE "\\p{White_Space}"
#define NO_SPACE "\\P{White_Space}"
#define TRAILING_SPACE SPACE "+(?!" NO_SPACE ")|" SPACE "+"
#define CONTRACTION "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"

// Radford et al., GPT-2, encoder.py.
constexpr std::string_view kGpt2 =
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" TRAILING_SPACE;

// From the tokenizer.json of Llama 3 and of Qwen 2, which differ in how they cut digits.
#define WORDS_BY_LINE(digits)                                        \
  CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE \
              "\\p{L}\\p{N}]+"                                       \
              "[\\r\\n]*|" SPACE "*[\\r\\n]+|" TRAILING_SPACE
constexpr std::string_view kLlama3 = WORDS_BY_LINE("\\p{N}{1,3}");
constexpr std::string_view kQwen2 = WORDS_BY_LINE("\\p{N}");

#undef SPACE
#undef NO_SPACE
#undef TRAILING_SPACE
#undef CONTRACTION
#undef WORDS_BY_LINE

constexpr std::string_view kPunctuation = "[\\p{P}$+<=>^~|]+";

struct Rule {
  std::string_view name;
  std::array<std::string_view, 4> patterns;  // in order; empty ones are unused
  bool ignores_merges = false;
  bool adds_bos = false;
};

// As llama.cpp maps tokenizer.ggml.pre. "default" is its rule for files that name none: no model
// was trained with it, so it has to be asked for by name.
constexpr Rule kRules[] = {
    {"default", {kPunctuation, kGpt2, "\\p{N}+", "[0-9]{3}"}},
    {"gpt-2", {kGpt2}},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"smollm", {"\\p{N}", kGpt2}},
};

}  // namespace

std::string PreTokenizer::SupportedNames() {
  std::string names;
  for (const Rule& rule : kRules) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", rule.name);
  }
  return names;
}

PreTokenizer PreTokenizer::Make(std::string_view name, std::string_view where) {
  for (const Rule& rule : kRules) {
    if (rule.name != name) continue;
    PreTokenizer made;
    for (const std::string_view pattern : rule.patterns) {
      if (!pattern.empty()) made.patterns_.emplace_back(std::string(pattern));
    }
    made.ignores_merges_ = rule.ignores_merges;
    made.adds_bos_ = rule.adds_bos;
    return made;
  }
  throw Error({std::string(where), fmt::format("pre-tokenizer {} is unknown", Quote(name)),
               "supported: " + SupportedNames()});
}

std::vector<size_t> PreTokenizer::Split(std::string_view text) const {
  std::vector<size_t> ends;
  size_t begin = 0;  // of the well-formed stretch before `at`
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = FirstUtf8Unit(text.substr(at));
    if (unit.form == Utf8Form::kWhole) {
      at += unit.length;
      continue;
    }
    SplitWellFormed(text.substr(begin, at - begin), begin, &ends);
    for (size_t i = 0; i < unit.length; ++i) ends.push_back(++at);
    begin = at;
  }
  SplitWellFormed(text.substr(begin), begin, &ends);

  size_t last = 0;
  for (const size_t end : ends) {
    LS_CHECK(end > last, "a pre-token ends at {} after one that ends at {}", end, last);
    last = end;
  }
  LS_CHECK(last == text.size(), "pre-tokens cover {} of {} bytes", last, text.size());
  return ends;
}

void PreTokenizer::SplitWellFormed(std::string_view text, size_t offset,
                                   std::vector<size_t>* ends) const {
  if (text.empty()) return;
  std::vector<size_t> pieces = {text.size()};
  std::vector<size_t> finer;
  for (const Pattern& pattern : patterns_) {
    finer.clear();
    size_t begin = 0;
    for (const size_t end : pieces) {
      pattern.Split(text.substr(begin, end - begin), begin, &finer);
      begin = end;
    }
    pieces.swap(finer);
  }
  for (const size_t end : pieces) ends->push_back(offset + end);
}

}  // namespace lockstep
