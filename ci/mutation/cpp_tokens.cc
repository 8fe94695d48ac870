#include "ci/mutation/cpp_tokens.h"

#include <algorithm>
#include <array>
#include <string>

namespace lockstep::mutation {
namespace {

bool IsWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

constexpr std::array<std::string_view, 19> kPairs = {
    "<=", ">=", "==", "!=", "->", "::", "++", "--", "&&", "||",
    "+=", "-=", "*=", "/=", "|=", "&=", "^=", "<<", ">>"};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::vector<Token> Run() {
    while (at_ < text_.size()) Step();
    return std::move(tokens_);
  }

 private:
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void Step() {
    const char c = Peek();
    if (c == '\n') {
      line_start_ = true;
      return Skip(1);
    }
    if (c == ' ' || c == '\t' || c == '\r') return Skip(1);
    if (c == '/' && Peek(1) == '/') return Skip(Find("\n") - at_);
    if (c == '/' && Peek(1) == '*') return Skip(Find("*/") + 2 - at_);
    if (c == '#' && line_start_) return SkipDirective();
    line_start_ = false;
    if (c == 'R' && Peek(1) == '"') return Emit(Token::Kind::kLiteral, RawLiteralSize());
    if (c == '"' || c == '\'') return Emit(Token::Kind::kLiteral, LiteralSize(c));
    if (IsWordStart(c)) return Emit(Token::Kind::kWord, WordSize());
    if (IsDigit(c)) return Emit(Token::Kind::kNumber, NumberSize());
    const size_t size = std::ranges::count(kPairs, text_.substr(at_, 2)) != 0 ? 2 : 1;
    Emit(Token::Kind::kSymbol, size);
  }

  size_t Find(std::string_view what) const { return std::min(text_.find(what, at_), text_.size()); }

  void Skip(size_t size) {
    const size_t end = std::min(at_ + size, text_.size());
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  void Emit(Token::Kind kind, size_t size) {
    tokens_.push_back({kind, text_.substr(at_, size), at_, line_});
    Skip(size);
  }

  void SkipDirective() {
    do {
      Skip(Find("\n") + 1 - at_);
    } while (at_ >= 2 && at_ < text_.size() && text_[at_ - 2] == '\\');
  }

  size_t LiteralSize(char quote) const {
    size_t size = 1;
    while (at_ + size < text_.size() && Peek(size) != quote) size += Peek(size) == '\\' ? 2u : 1u;
    return size + 1;
  }

  size_t RawLiteralSize() const {
    const size_t open = text_.find('(', at_);
    std::string close(text_.substr(at_ + 1, open - at_ - 1));  // the quote and the delimiter
    close[0] = ')';
    close += '"';
    return std::min(text_.find(close, at_), text_.size()) + close.size() - at_;
  }

  size_t WordSize() const {
    size_t size = 1;
    while (IsWordStart(Peek(size)) || IsDigit(Peek(size))) ++size;
    return size;
  }

  // Suffixes, exponents, hexadecimal digits and digit separators belong to it.
  size_t NumberSize() const {
    size_t size = 1;
    while (IsWordStart(Peek(size)) || IsDigit(Peek(size)) || Peek(size) == '.' ||
           (Peek(size) == '\'' && IsDigit(Peek(size + 1)))) {
      ++size;
    }
    return size;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> TokensOf(std::string_view text) { return Scanner(text).Run(); }

}  // namespace lockstep::mutation
