#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ci/tidy/pattern.h"
#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

enum class Scope {
  kCpp,          // C++ code
  kHeaders,      // C++ code of headers
  kNumericPath,  // C++ code of caches/ and engine/, tests aside
  kClockless,    // C++ code but engine/stopwatch.h and reports/, tests aside
  kOutput,       // C++ code, tests aside
  kTemporary,    // C++ code but caches/temporary_folder.cc
  kBuild,        // CMake files, presets and scripts
  kBuildBits,    // the same but the scripts whose controls have to compute other bits
  kAnyText,      // every line of every text, comments and literals included
  kNoTest,       // the same, tests aside
};

struct BannedWord {
  std::string_view regex;
  Scope scope;
  std::string_view instead;
};

// Literals are broken where a word must not even stand in a text.
constexpr BannedWord kBannedWords[] = {
    {R"(\bstd::random_device\b)", Scope::kCpp, "lockstep::Random with a printed seed"},
    {R"(\bstd::(mt19937\w*|minstd_rand0?|default_random_engine|ranlux\w+)\b)", Scope::kCpp,
     "lockstep::Random (caches/random.h)"},
    {R"(\bstd::\w+_distribution\b)", Scope::kCpp,
     "Random::Below or Random::Between: distributions differ between standard libraries"},
    {R"(\bstd::(random_)?shuffle\b)", Scope::kCpp,
     "an own loop over Random::Below: the standard leaves the order open"},
    {R"((?<![\w.>])s?rand\s*\()", Scope::kCpp, "lockstep::Random (caches/random.h)"},
    {R"(\bstd::(exp2?|expm1|log2?|log10|log1p|pow|sin|cos|tan|a?tanh?2?|sinh|cosh|erf|cbrt)\b)",
     Scope::kNumericPath, "the canonical functions of engine/math.h: libm's bits vary"},
    {R"((?<![\w.>:])(exp2?|log2?|log10|pow|tanh?|expm1|log1p)\s*\()", Scope::kNumericPath,
     "the canonical functions of engine/math.h: libm's bits vary"},
    {R"(\b(exp2?|log2?|log10|pow|sin|cos|tanh?|sincos|expm1|log1p)f\s*\()", Scope::kNumericPath,
     "the canonical functions of engine/math.h: libm's bits vary"},
    {R"(\bstd::(reduce|transform_reduce|execution)\b)", Scope::kNumericPath,
     "a loop whose order ARITHMETIC.md gives"},
    {R"(\bstd::atomic(_ref)?<\s*(float|double)\b)", Scope::kCpp,
     "a fixed order of additions: atomics of floats add in any order"},
    {R"(\bstd::chrono::\w*clock\b|\b(clock_gettime|gettimeofday|__rdtsc)\b|(?<![\w.>:])time\s*\()",
     Scope::kClockless, "Stopwatch (engine/stopwatch.h)"},
    {R"(\bstd::(cout|cerr|clog)\b|^\s*#\s*include\s*<iostream>)", Scope::kOutput, "fmt::print"},
    {R"((?<![\w.])assert\s*\(|^\s*#\s*include\s*<c?assert(\.h)?>)", Scope::kCpp,
     "LS_CHECK, which is on in every build"},
    {R"(\bstd::format\b|^\s*#\s*include\s*<format>)", Scope::kCpp, "fmt::format: g++ 12 has none"},
    {R"(^\s*#\s*pragma\s+once\b)", Scope::kCpp, "an include guard"},
    {R"(\busing\s+namespace\b)", Scope::kHeaders, "qualified names"},
    {R"(\bfile\s*\(\s*GLOB)", Scope::kBuild, "sources listed by name"},
    {R"(\b(FetchContent|ExternalProject|CPMAddPackage))", Scope::kBuild,
     "a Debian package in ci/install"},
    {R"(-ffast-math|-Ofast|-funsafe-math|-fassociative-math|-freciprocal-math)", Scope::kBuildBits,
     "nothing: the bits are specified (engine/ARITHMETIC.md)"},
    {R"(-m(arch|tune)=native)", Scope::kBuild, "flags for one kernel file, chosen at run time"},
    {R"(-ffp-contract=(on|fast))", Scope::kBuild, "-ffp-contract=off on every target"},
    {R"(\bTempDir\s*\(|\btemp_directory_path\b|\b(mk[ds]?temps?|tmpnam|tempnam|tmpfile)\s*\()",
     Scope::kTemporary,
     "TemporaryFolder (caches/temporary_folder.h): no two processes share a file"},
    {"\\b(FIX"
     "ME|XX"
     "X|TO"
     "DO)\\b",
     Scope::kAnyText, "the work itself, or an open issue"},
    {"(?<![\\w.])/(ho"
     "me|wo"
     "rk|ro"
     "ot|us"
     "r/local)/",
     Scope::kAnyText, "a path relative to the repository, or an option"},
    {"(?<![\\w.])/t"
     "mp\\b",
     Scope::kNoTest, "a path that the caller gives"},
};

bool InScope(const SourceFile& file, Scope scope) {
  const bool cpp = file.language == Language::kCpp;
  const std::string_view folder = file.folder();
  switch (scope) {
    case Scope::kCpp:
      return cpp;
    case Scope::kHeaders:
      return file.is_header();
    case Scope::kNumericPath:
      return cpp && !file.is_test() && (folder == "caches" || folder == "engine");
    case Scope::kClockless:
      return cpp && !file.is_test() && folder != "reports" && file.path != "engine/stopwatch.h";
    case Scope::kTemporary:
      return cpp && file.path != "caches/temporary_folder.cc";
    case Scope::kOutput:
      return cpp && !file.is_test();
    case Scope::kBuildBits:
      return file.path != "ci/compilers" && file.path != "ci/aarch64" &&
             InScope(file, Scope::kBuild);
    case Scope::kBuild:
      return file.language == Language::kCMake || file.language == Language::kShell ||
             file.path == "CMakePresets.json";
    case Scope::kAnyText:
      return true;
    case Scope::kNoTest:
      return !file.is_test();
  }
  return false;
}

// The names of variables and members of unordered containers that the file declares.
std::vector<std::string> UnorderedNames(const SourceFile& file) {
  static const Pattern declaration(R"(\bunordered_(?:multi)?(?:map|set)\s*<)");
  static const Pattern name(R"(\G\s*[&*]*\s*(\w+)\s*[;={(,)])");
  std::vector<std::string> names;
  const std::string text = JoinLines(file.code);
  for (const std::string_view match : declaration.FindAll(text, 0)) {
    size_t at = static_cast<size_t>(match.data() - text.data()) + match.size();
    for (int depth = 1; depth > 0 && at < text.size(); ++at) {
      depth += text[at] == '<' ? 1 : text[at] == '>' ? -1 : 0;
    }
    const auto groups = name.Find(text, at);
    if (!groups.empty()) names.emplace_back(groups[1]);
  }
  return names;
}

size_t LineOf(std::string_view text, std::string_view match) {
  size_t line = 1;
  for (const char* at = text.data(); at != match.data(); ++at) line += *at == '\n' ? 1u : 0u;
  return line;
}

}  // namespace

void CheckBannedWords(const SourceTree& tree, Findings* findings) {
  static const std::vector<Pattern> patterns = [] {
    std::vector<Pattern> compiled;
    for (const BannedWord& word : kBannedWords) compiled.emplace_back(word.regex);
    return compiled;
  }();
  for (const SourceFile& file : tree.files) {
    for (size_t w = 0; w < std::size(kBannedWords); ++w) {
      const BannedWord& word = kBannedWords[w];
      if (!InScope(file, word.scope)) continue;
      const bool any_text = word.scope == Scope::kAnyText || word.scope == Scope::kNoTest;
      const std::vector<std::string>& lines = any_text ? file.raw : file.code;
      for (size_t i = 0; i < lines.size(); ++i) {
        const auto groups = patterns[w].Find(lines[i]);
        if (groups.empty()) continue;
        findings->push_back(
            {file.path, i + 1, "banned-word",
             fmt::format("'{}' has no place here; use {}", groups[0], word.instead)});
      }
    }
  }
}

void CheckUnorderedIteration(const SourceTree& tree, Findings* findings) {
  // The rest of the line after the colon of a range-for, and the last name before its first ')'.
  static const Pattern range_for(R"(\bfor\s*\([^;()]*?(?<!:):(?!:)\s*([^;\n]*))");
  static const Pattern last_name(R"(^(?:\w+(?:\.|->))*(\w+)\))");
  static const Pattern begin_call(R"(\b(\w+)(?:\.|->)c?begin\s*\()");
  for (const SourceFile& file : tree.files) {
    if (file.language != Language::kCpp) continue;
    std::vector<std::string> names = UnorderedNames(file);
    const std::string stem = file.path.substr(0, file.path.rfind('.'));
    if (const SourceFile* header = tree.Find(stem + ".h"); header != nullptr && header != &file) {
      for (std::string& name : UnorderedNames(*header)) names.push_back(std::move(name));
    }
    const std::string text = JoinLines(file.code);
    const auto report = [&](std::string_view match) {
      findings->push_back({file.path, LineOf(text, match), "unordered-iteration",
                           "iterates over an unordered container, whose order is an accident; use "
                           "std::map, or sort first"});
    };
    for (const std::string_view range : range_for.FindAll(text, 1)) {
      const auto groups = last_name.Find(range);
      const bool named =
          !groups.empty() && std::find(names.begin(), names.end(), groups[1]) != names.end();
      if (named || range.find("unordered_") != std::string_view::npos) report(range);
    }
    for (const std::string_view object : begin_call.FindAll(text, 1)) {
      if (std::find(names.begin(), names.end(), object) != names.end()) report(object);
    }
  }
}

}  // namespace lockstep::tidy
