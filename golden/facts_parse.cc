// The text of a golden file, read strictly: whatever did not come out of GoldenFile::Text is an
// error with its line.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "caches/error.h"
#include "golden/facts.h"

namespace lockstep {
namespace {

std::optional<int32_t> NumberOf(std::string_view text) {
  int32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value < 0) return std::nullopt;
  return fmt::format("{}", value) == text ? std::optional(value) : std::nullopt;
}

std::optional<Digest> DigestOf(std::string_view text) {
  Digest digest;
  if (text.size() != 32) return std::nullopt;
  for (auto [part, half] :
       {std::pair{text.substr(0, 16), &digest.high}, std::pair{text.substr(16), &digest.low}}) {
    const auto [at, error] = std::from_chars(part.data(), part.data() + 16, *half, 16);
    if (error != std::errc() || at != part.data() + 16) return std::nullopt;
  }
  return digest.Hex() == text ? std::optional(digest) : std::nullopt;
}

bool IsConflictMarker(std::string_view line) {
  return line.starts_with("<<<<<<<") || line.starts_with("=======") ||
         line.starts_with(">>>>>>>") || line.starts_with("|||||||");
}

bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  GoldenFile Parse() {
    ParseHeader();
    while (!ParseEnd(Line())) golden_.facts.push_back(ParseFact());
    if (!text_.empty()) {
      Line();
      Fail("stands behind the end");
    }
    return std::move(golden_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what,
                         const std::string& remedy = "take the file as it was recorded") const {
    throw Error({fmt::format("{}, line {}", where_, number_), what, remedy});
  }

  // The next line, which stays `line_`.
  std::string_view Line() {
    ++number_;
    if (text_.empty()) Fail("the file is cut off");
    const size_t end = text_.find('\n');
    line_ = text_.substr(0, end);
    if (IsConflictMarker(line_)) {
      Fail("is a merge-conflict marker", "take one side of the conflict, or record again");
    }
    if (end == text_.npos) Fail("the file is cut off");
    text_.remove_prefix(end + 1);
    if (!IsPlain(line_)) Fail("holds a character that no fact has");
    return line_;
  }

  std::string_view Field(std::string_view key) {
    const std::string_view line = Line();
    if (!line.starts_with(key) || line.size() < key.size() + 2 || line[key.size()] != ' ') {
      Fail(fmt::format("is not '{} ...'", key));
    }
    return line.substr(key.size() + 1);
  }

  int32_t Number(std::string_view text) const {
    const auto value = NumberOf(text);
    if (!value) Fail(fmt::format("'{}' is no number", text));
    return *value;
  }

  Digest Hash(std::string_view text) const {
    const auto digest = DigestOf(text);
    if (!digest) Fail(fmt::format("'{}' is no digest of 32 hexadecimal digits", text));
    return *digest;
  }

  void ParseHeader() {
    const int32_t format = Number(Field("golden"));
    if (format != kGoldenFormat) {
      Fail(fmt::format("has format {}, this lockstep reads {}", format, kGoldenFormat),
           "record again, or use the lockstep that wrote it");
    }
    golden_.header.scenario = Hash(Field("scenario"));
    golden_.header.model = Hash(Field("model"));
    golden_.header.rows = Field("rows");
    golden_.header.arithmetic = Number(Field("arithmetic"));
    golden_.header.recorded_by = Field("recorded-by");
    if (!Line().empty()) Fail("has to be empty, behind the header");
  }

  // A number behind a prefix at the start of `rest`, taken off it with its blank; else -1.
  int32_t Take(std::string_view prefix, std::string_view* rest) const {
    const std::string_view word = rest->substr(0, rest->find(' '));
    if (!word.starts_with(prefix) || word.size() == rest->size()) return -1;
    const auto number = NumberOf(word.substr(prefix.size()));
    if (!number) return -1;
    rest->remove_prefix(word.size() + 1);
    return *number;
  }

  Fact ParseFact() const {
    Fact fact;
    std::string_view rest = line_;
    fact.op = Take("op", &rest);
    if (fact.op < 0) Fail("is no fact: it begins with no operation, 'op0'");
    fact.step = Take("step", &rest);
    fact.sequence = Take("seq", &rest);
    fact.layer = Take("layer", &rest);
    fact.name = rest.substr(0, rest.find(' '));
    if (!IsFactName(fact.name)) Fail(fmt::format("'{}' names no fact", fact.name));
    if (rest.size() < fact.name.size() + 2) Fail("has no value");
    fact.value = rest.substr(fact.name.size() + 1);
    if (!golden_.facts.empty() && !FactBefore(golden_.facts.back(), fact)) {
      Fail(FactBefore(fact, golden_.facts.back()) ? "is out of order"
                                                  : "says the same place again");
    }
    if (fact.name == "sum") CheckSum(fact);
    return fact;
  }

  void CheckSum(const Fact& sum) const {
    const auto belongs = [&](const Fact& fact) {
      return fact.op == sum.op && fact.step == sum.step && fact.sequence == sum.sequence &&
             (sum.layer < 0 || fact.layer == sum.layer);
    };
    size_t first = golden_.facts.size();
    while (first > 0 && belongs(golden_.facts[first - 1])) --first;
    if (SumOfFacts(std::span(golden_.facts).subspan(first)) == sum.value) return;
    Fail("the sum does not fit the lines above it: they were edited or merged by hand",
         "take the file as it was recorded, or record again");
  }

  bool ParseEnd(std::string_view line) const {
    if (!line.starts_with("end ")) return false;
    const std::string text = golden_.Text();
    const size_t last = text.rfind("\nend ") + 1;
    if (line != std::string_view(text).substr(last, text.size() - last - 1)) {
      Fail("does not fit the lines above it: they were edited or merged by hand",
           "take the file as it was recorded, or record again");
    }
    return true;
  }

  std::string_view text_;
  std::string_view where_;
  std::string_view line_;
  int number_ = 0;
  GoldenFile golden_;
};

}  // namespace

GoldenFile ParseGoldenFile(std::string_view text, std::string_view where) {
  return Parser(text, where).Parse();
}

}  // namespace lockstep
