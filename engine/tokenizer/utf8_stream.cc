// Utf8Stream (engine/tokenizer.h).
#include <utility>

#include "engine/tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  text.reserve(pending_.size());
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Unit unit = FirstUtf8Unit(rest);
    if (unit.form == Utf8Form::kCut) break;
    text += unit.form == Utf8Form::kWhole ? rest.substr(0, unit.length) : kReplacement;
    rest.remove_prefix(unit.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Utf8Stream::Flush() {
  // What is held back is one cut sequence, which is one maximal subpart.
  const bool cut = !std::exchange(pending_, "").empty();
  return std::string(cut ? kReplacement : "");
}

}  // namespace lockstep
