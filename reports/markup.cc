#include "reports/markup.h"

#include <fmt/format.h>

namespace lockstep {

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\n':
        out += "&#10;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string MarkdownCell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      out += ' ';
    } else if (c == '&' || c == '<') {
      out += Escaped({&c, 1});
    } else {
      if (std::string_view("|`*_[\\").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string AnnotationText(std::string_view text, Annotation as) {
  const bool property = as == Annotation::kProperty;
  std::string out;
  for (const char c : text) {
    const bool escaped = c == '%' || c == '\n' || c == '\r' || (property && (c == ':' || c == ','));
    out += escaped ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

}  // namespace lockstep
