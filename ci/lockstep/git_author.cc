#include "ci/lockstep/git_author.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "caches/error.h"
#include "ci/lockstep/shell_word.h"

namespace lockstep::cli {
namespace {

constexpr const char* kEpoch = "SOURCE_DATE_EPOCH";

// What the command prints, or nothing when it fails; its exit status goes to `status`.
std::string OutputOf(const std::string& command, int* status) {
  std::string output;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    output.push_back(static_cast<char>(c));
  }
  *status = ::pclose(pipe);
  return output;
}

// The seconds since 1970 that `text` says, in UTC. Error unless it is a whole number of a year that
// has four digits.
std::string UtcText(const std::string& where, std::string_view text) {
  constexpr int64_t kSecondsMax = 253402300799;  // 9999-12-31T23:59:59Z
  int64_t seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0 ||
      seconds > kSecondsMax) {
    throw Error({where, fmt::format("'{}' is no time in seconds since 1970", text),
                 "give a whole number, or unset it"});
  }
  const std::time_t value = seconds;
  std::tm utc = {};
  ::gmtime_r(&value, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

GitAuthor AskGitForAuthor(const std::string& folder) {
  // useConfigOnly: a name made of the login and the machine's name is nobody's.
  int status = -1;
  const std::string answer =
      OutputOf(fmt::format("git -C {} -c user.useConfigOnly=true var GIT_AUTHOR_IDENT 2>/dev/null",
                           ShellWord(folder)),
               &status);
  // "Ada <ada@example.org> 1796032800 +0000\n"
  const size_t zone = answer.rfind(' ');
  const size_t time = zone == answer.npos ? zone : answer.rfind(' ', zone - 1);
  if (status != 0 || time == answer.npos) {
    throw Error({"git", "does not say who you are, which the ledger records",
                 "git config user.name NAME && git config user.email ADDRESS"});
  }
  const char* epoch = std::getenv(kEpoch);
  const bool forced = epoch != nullptr && *epoch != '\0';
  return {.author = answer.substr(0, time),
          .date = UtcText(forced ? kEpoch : "git",
                          forced ? std::string_view(epoch)
                                 : std::string_view(answer).substr(time + 1, zone - time - 1))};
}

}  // namespace lockstep::cli
