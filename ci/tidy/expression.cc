#include "ci/tidy/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

namespace lockstep::tidy {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// Recursive descent. Operators are taken as they come: what binds stronger matters to no name.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : rest_(text) {}

  Expression Parse() && {
    Operands();
    SkipBlanks();
    if (!rest_.empty()) Fail(fmt::format("'{}' is not expected", rest_));
    return std::move(parsed_);
  }

 private:
  // The first failure is the one that counts; what follows is not read.
  void Fail(const std::string& what) {
    if (parsed_.error.empty()) parsed_.error = what;
    rest_ = {};
  }

  void SkipBlanks() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front())) != 0) {
      rest_.remove_prefix(1);
    }
  }

  bool Take(std::string_view token) {
    SkipBlanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  void Expect(std::string_view token) {
    if (!Take(token)) Fail(fmt::format("'{}' is missing", token));
  }

  template <typename Condition>
  std::string_view TakeWhile(Condition condition) {
    const auto end = std::ranges::find_if_not(rest_, condition);
    const std::string_view taken(rest_.begin(), end);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  bool TakeOperator() {
    constexpr std::string_view kOperators[] = {"&&", "||", "==", "!=", "<=", ">=", "<", ">"};
    return std::ranges::any_of(kOperators, [&](std::string_view token) { return Take(token); });
  }

  void Operands() {
    do {
      Operand();
    } while (TakeOperator());
  }

  void Operand() {
    while (Take("!")) {
    }
    SkipBlanks();
    if (rest_.empty()) return Fail("it ends where a value is expected");
    const char c = rest_.front();
    if (Take("(")) {
      Operands();
      Expect(")");
      Suffixes(nullptr);
    } else if (c == '\'') {
      Literal();
    } else if (IsDigit(c) || c == '-' || c == '.') {
      TakeWhile([](char d) { return IsNameChar(d) || d == '.' || d == '+'; });
    } else if (IsNameChar(c)) {
      Name();
    } else {
      Fail(fmt::format("'{}' is no value", rest_));
    }
  }

  // 'it''s', without its quotes.
  std::string Literal() {
    std::string text;
    rest_.remove_prefix(1);
    for (size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '\'') {
        if (i + 1 == rest_.size() || rest_[i + 1] != '\'') {
          rest_.remove_prefix(i + 1);
          return text;
        }
        ++i;
      }
      text += rest_[i];
    }
    Fail("a text has no end");
    return text;
  }

  void Name() {
    const std::string name(TakeWhile(IsNameChar));
    if (Take("(")) {
      size_t arguments = 0;
      if (!Take(")")) {
        do {
          Operands();
          ++arguments;
        } while (Take(","));
        Expect(")");
      }
      parsed_.calls.push_back({name, arguments});
      return Suffixes(nullptr);
    }
    if (name == "true" || name == "false" || name == "null") return;
    std::vector<std::string> names = {name};
    Suffixes(&names);
    parsed_.references.push_back(std::move(names));
  }

  // .name, .*, ['name'] and [computed], of what has these names; nullptr: it is no context.
  void Suffixes(std::vector<std::string>* names) {
    std::vector<std::string> nobody;
    if (names == nullptr) names = &nobody;
    while (true) {
      if (Take(".")) {
        SkipBlanks();
        const std::string name(Take("*") ? "*" : TakeWhile(IsNameChar));
        if (name.empty()) return Fail("a name is missing behind '.'");
        names->push_back(name);
      } else if (Take("[")) {
        SkipBlanks();
        if (rest_.starts_with('\'')) {
          names->push_back(Literal());
        } else {
          Operands();
          names->push_back("*");
        }
        Expect("]");
      } else {
        return;
      }
    }
  }

  std::string_view rest_;
  Expression parsed_;
};

}  // namespace

Expression ParseExpression(std::string_view text) { return ExpressionParser(text).Parse(); }

std::optional<std::vector<std::string>> ExpressionsIn(std::string_view text) {
  constexpr std::string_view kOpen = "${{", kClose = "}}";
  std::vector<std::string> expressions;
  for (size_t open = text.find(kOpen); open != text.npos; open = text.find(kOpen)) {
    text.remove_prefix(open + kOpen.size());
    bool in_literal = false;  // of which }} is no end
    size_t end = 0;
    for (; end < text.size() && (in_literal || !text.substr(end).starts_with(kClose)); ++end) {
      if (text[end] == '\'') in_literal = !in_literal;
    }
    if (end == text.size()) return std::nullopt;
    expressions.emplace_back(text.substr(0, end));
    text.remove_prefix(end + kClose.size());
  }
  return expressions;
}

}  // namespace lockstep::tidy
