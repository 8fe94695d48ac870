#include "ci/lockstep/number_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "caches/error.h"

namespace lockstep::cli {

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<int32_t> NumberList(std::string_view flag, const std::string& text, int32_t low,
                                int32_t high) {
  std::vector<int32_t> numbers;
  for (const std::string& part : SplitList(text)) {
    int32_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || number < low || number > high) {
      throw Error({std::string(flag),
                   fmt::format("'{}' is no whole number from {} to {}", part, low, high),
                   "give some, separated by commas"});
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace lockstep::cli
