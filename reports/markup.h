// Text inside of what other programs read: markup, and the lines of a CI service.
#ifndef LOCKSTEP_REPORTS_MARKUP_H_
#define LOCKSTEP_REPORTS_MARKUP_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// `text` as character data of XML or HTML, in or out of an attribute.
std::string Escaped(std::string_view text);

// `text` inside of a cell of a Markdown table, as GitHub renders it: nothing in it is markup, a
// line break is a blank.
std::string MarkdownCell(std::string_view text);

// `text` in a line "::error title=PROPERTY::DATA": GitHub's workflow commands
// (https://docs.github.com/actions, "workflow commands").
enum class Annotation : uint8_t { kData, kProperty };
std::string AnnotationText(std::string_view text, Annotation as = Annotation::kData);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_MARKUP_H_
