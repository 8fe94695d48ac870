// Stands between the harness and a plug-in: every array that crosses the border lies on pages of
// its own, flush against a page without access, read-only where the plug-in may only read, and gone
// when the call is over. A plug-in that reads or writes past an array, writes to what is const, or
// keeps a pointer, ends by SIGSEGV, with one line on standard error that names the call and the
// array.
#ifndef LOCKSTEP_PROPERTIES_PLUGIN_BORDER_H_
#define LOCKSTEP_PROPERTIES_PLUGIN_BORDER_H_

#include <memory>
#include <string_view>

#include "caches/plugin_cache.h"

namespace lockstep {

// How that line begins.
inline constexpr std::string_view kBorderWords = "at the border, ";

// The same plug-in behind the border. For a process that judges (isolated_run.h): it installs a
// handler of SIGSEGV, and a process has one border, on one thread (LS_CHECK).
// Odd calls have their arrays at the beginning of a page, even ones at the end.
std::shared_ptr<const PluginLibrary> BehindBorder(std::shared_ptr<const PluginLibrary> plugin);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_PLUGIN_BORDER_H_
