#include "ci/mutation/mutants.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "caches/random.h"
#include "ci/mutation/cpp_tokens.h"

namespace lockstep::mutation {
namespace {

using Kind = Token::Kind;

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::ranges::count(list, text) != 0;
}

class Finder {
 public:
  explicit Finder(std::string_view text) : text_(text), tokens_(TokensOf(text)) {}

  std::vector<Mutant> Run() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].kind == Kind::kWord &&
          IsOneOf(tokens_[i].text, {"static_assert", "LS_CHECK"}) && Symbol(i + 1, "(")) {
        i = Closing(i + 1);
        continue;
      }
      Comparison(i);
      Constant(i);
      Statement(i);
      Arguments(i);
    }
    return std::move(mutants_);
  }

 private:
  bool Symbol(size_t i, std::string_view text) const {
    return i < tokens_.size() && tokens_[i].kind == Kind::kSymbol && tokens_[i].text == text;
  }
  bool Word(size_t i) const { return i < tokens_.size() && tokens_[i].kind == Kind::kWord; }
  size_t End(size_t i) const { return tokens_[i].offset + tokens_[i].text.size(); }

  // The index of the bracket that closes the one at `i`, or the last token.
  size_t Closing(size_t i) const {
    int depth = 0;
    for (; i < tokens_.size(); ++i) {
      if (tokens_[i].kind != Kind::kSymbol) continue;
      if (IsOneOf(tokens_[i].text, {"(", "[", "{"})) ++depth;
      if (IsOneOf(tokens_[i].text, {")", "]", "}"}) && --depth == 0) return i;
    }
    return tokens_.size() - 1;
  }

  void Add(std::string_view operator_name, size_t first, size_t last, std::string after) {
    mutants_.push_back({std::string(operator_name), tokens_[first].offset,
                        End(last) - tokens_[first].offset, std::move(after), tokens_[first].line});
  }

  // Brackets of templates touch their neighbours, comparisons stand between blanks.
  void Comparison(size_t i) {
    static const std::map<std::string_view, std::string_view> kOther = {
        {"<", "<="}, {"<=", "<"}, {">", ">="}, {">=", ">"}, {"==", "!="}, {"!=", "=="}};
    const auto other = kOther.find(tokens_[i].text);
    if (other == kOther.end() || tokens_[i].offset == 0) return;
    if (Word(i - 1) && tokens_[i - 1].text == "operator") return;
    const bool apart = text_[tokens_[i].offset - 1] == ' ' && End(i) < text_.size() &&
                       (text_[End(i)] == ' ' || text_[End(i)] == '\n');
    if (apart) Add("comparison", i, i, std::string(other->second));
  }

  void Constant(size_t i) {
    if (tokens_[i].kind != Kind::kNumber) return;
    const std::string_view text = tokens_[i].text;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
    // Octal, hexadecimal and fractions are left alone.
    const bool octal = text[0] == '0' && end != text.data() + 1;
    const bool whole = error == std::errc() && !octal &&
                       IsOneOf(suffix, {"", "u", "U", "l", "L", "ul", "uL", "UL", "ull", "ULL"});
    if (!whole) return;
    Add("constant", i, i, fmt::format("{}{}", value + 1, suffix));
    if (value > 0) Add("constant", i, i, fmt::format("{}{}", value - 1, suffix));
  }

  bool BeginsStatement(size_t i) const {
    if (i == 0) return false;
    const Token& last = tokens_[i - 1];
    if (last.kind == Kind::kWord) return last.text == "else";
    return IsOneOf(last.text, {";", "{", "}", ")"});
  }

  // From the token that begins a statement to its semicolon; 0 when it is none that is dropped. A
  // declaration has two words in a row before anything else, or ends its type with & or * or >.
  size_t StatementEnd(size_t i) const {
    const std::string_view first = tokens_[i].text;
    const bool jump = IsOneOf(first, {"throw", "break", "continue"});
    const bool step = Symbol(i, "++") || Symbol(i, "--") || Symbol(i, "*");
    if (!Word(i) && !step) return 0;
    if (Symbol(i, "*") && Symbol(i - 1, ")")) return 0;  // a factor
    static const std::set<std::string_view> kOther = {
        "return", "if",      "for",    "while",     "do",     "switch",    "case",    "default",
        "else",   "using",   "const",  "constexpr", "static", "struct",    "class",   "enum",
        "public", "private", "friend", "template",  "auto",   "namespace", "typedef", "protected",
        "try",    "catch",   "goto",   "explicit",  "virtual"};
    if (kOther.contains(first)) return 0;
    bool effect = jump || step;
    for (size_t j = i; j < tokens_.size(); ++j) {
      if (Symbol(j, ";")) return effect ? j : 0;
      if (IsOneOf(tokens_[j].text, {")", "]"})) return 0;  // of a for
      if (Symbol(j, "{") && Symbol(j - 1, ")")) return 0;  // a function's body
      if (IsOneOf(tokens_[j].text, {"{", "}"}) && !effect) return 0;
      if (Symbol(j, "=") || IsOneOf(tokens_[j].text, {"+=", "-=", "*=", "/=", "|=", "&=", "^="})) {
        effect = true;
      }
      if (!effect && Word(j) && Word(j + 1)) return 0;
      if (!effect && (Symbol(j, "&") || Symbol(j, "*") || Symbol(j, ">") || Symbol(j, "<"))) {
        return 0;
      }
      if (Symbol(j, "(") || Symbol(j, "[") || Symbol(j, "{")) {
        effect = effect || Symbol(j, "(");
        j = Closing(j);
      }
    }
    return 0;
  }

  void Statement(size_t i) {
    if (!BeginsStatement(i)) return;
    const size_t end = StatementEnd(i);
    // A member's or a function's declaration looks like a call; its body or its end tells.
    if (end == 0 || (Symbol(i + 1, "(") && Closing(i + 1) + 1 != end)) return;
    Add("statement", i, end, ";");
  }

  // Whether the tokens of [first, last) are one expression without a type in front of a name.
  bool IsExpression(size_t first, size_t last) const {
    if (first >= last) return false;
    for (size_t j = first; j < last; ++j) {
      if (Word(j) && j + 1 < last && Word(j + 1)) return false;
      if (Word(j) && IsOneOf(tokens_[j].text, {"const", "int32_t", "int64_t", "auto"}))
        return false;
    }
    return true;
  }

  void Arguments(size_t i) {
    if (!Word(i) || !Symbol(i + 1, "(")) return;
    if (IsOneOf(tokens_[i].text, {"if", "for", "while", "switch", "catch", "sizeof", "return"})) {
      return;
    }
    const size_t close = Closing(i + 1);
    std::vector<size_t> commas;
    for (size_t j = i + 2; j < close; ++j) {
      if (Symbol(j, "(") || Symbol(j, "[") || Symbol(j, "{")) j = Closing(j);
      if (Symbol(j, ",")) commas.push_back(j);
    }
    if (commas.empty()) return;
    const size_t comma = commas[0];
    const size_t end = commas.size() > 1 ? commas[1] : close;
    if (!IsExpression(i + 2, comma) || !IsExpression(comma + 1, end)) return;
    const auto text = [&](size_t first, size_t last) {
      return text_.substr(tokens_[first].offset, End(last - 1) - tokens_[first].offset);
    };
    const std::string_view a = text(i + 2, comma);
    const std::string_view b = text(comma + 1, end);
    if (a == b || tokens_[i + 2].kind == Kind::kLiteral) return;
    Add("arguments", i + 2, end - 1, fmt::format("{}, {}", b, a));
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::vector<Mutant> mutants_;
};

}  // namespace

std::vector<Mutant> FindMutants(std::string_view text) {
  std::vector<Mutant> mutants = Finder(text).Run();
  std::ranges::stable_sort(mutants, {}, &Mutant::offset);
  return mutants;
}

std::string ApplyMutant(const Mutant& mutant, std::string_view text) {
  std::string mutated(text.substr(0, mutant.offset));
  mutated += mutant.after;
  mutated += text.substr(mutant.offset + mutant.size);
  return mutated;
}

std::string TrimmedLine(std::string_view text, int line) {
  size_t first = 0;
  for (int i = 1; i < line && first != text.npos; ++i) first = text.find('\n', first) + 1;
  std::string_view trimmed = text.substr(first, text.find('\n', first) - first);
  const size_t begin = trimmed.find_first_not_of(" \t");
  if (begin == trimmed.npos) return "";
  return std::string(trimmed.substr(begin, trimmed.find_last_not_of(" \t\r") + 1 - begin));
}

std::vector<size_t> Sample(size_t size, size_t count, uint64_t seed) {
  std::vector<size_t> chosen(size);
  for (size_t i = 0; i < size; ++i) chosen[i] = i;
  Random random(seed);
  for (size_t i = 0; i < std::min(count, size); ++i) {
    std::swap(chosen[i], chosen[i + random.Below(static_cast<uint32_t>(size - i))]);
  }
  chosen.resize(std::min(count, size));
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace lockstep::mutation
