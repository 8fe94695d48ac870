#include "properties/fuzz/chunks.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/check.h"
#include "caches/error.h"
#include "properties/ddmin.h"

namespace lockstep::fuzz {
namespace {

std::string Hex(const Chunk& chunk) {
  std::string hex;
  for (const std::byte byte : chunk) hex += fmt::format("{:02x}", byte);
  return hex.empty() ? "-" : hex;
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

Chunk ParseHex(std::string_view word, const std::string& where) {
  const auto fail = [&] {
    throw Error({where, fmt::format("'{}' is no row of bytes", Printable(word)),
                 "two hexadecimal digits a byte, or -"});
  };
  Chunk chunk;
  if (word == "-") return chunk;
  if (word.size() % 2 != 0) fail();
  for (size_t i = 0; i < word.size(); i += 2) {
    const int high = Digit(word[i]);
    const int low = Digit(word[i + 1]);
    if (high < 0 || low < 0) fail();
    chunk.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return chunk;
}

}  // namespace

uint64_t NumberAt(const Chunk& chunk, size_t at, size_t bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes && at + i < chunk.size(); ++i) {
    number |= std::to_integer<uint64_t>(chunk[at + i]) << (8 * i);
  }
  return number;
}

std::string Printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const bool plain = c >= ' ' && c <= '~' && c != '\\';
    text += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return text;
}

std::string ChunkTarget::Print(const ChunkInput& input) const {
  std::string text = fmt::format("{}\n{}  # {}\n", word_, Hex(input.head), DescribeHead(input));
  for (size_t i = 0; i < input.ops.size(); ++i) {
    text += fmt::format("{}  # {}\n", Hex(input.ops[i]), DescribeOp(input, i));
  }
  return text;
}

ChunkInput ChunkTarget::Parse(std::string_view text, std::string_view where) const {
  ChunkInput input;
  int words = 0;
  for (int line_number = 1; !text.empty(); ++line_number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) continue;
    const std::string_view word = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    const std::string place = fmt::format("{}, line {}", where, line_number);
    ++words;
    if (words == 1) {
      if (word != word_) throw Error({place, "must be '" + word_ + "'", ""});
    } else if (words == 2) {
      input.head = ParseHex(word, place);
    } else {
      input.ops.push_back(ParseHex(word, place));
    }
  }
  if (words < 2) {
    throw Error({std::string(where), fmt::format("has no line '{}' and a head after it", word_),
                 "one operation a line, in hexadecimal digits"});
  }
  return input;
}

ChunkInput ChunkTarget::ShrinkInput(ChunkInput input, const InputJudge& judge) const {
  const auto finding = judge(input);
  LS_CHECK(finding, "nothing to shrink: {} operations find nothing", input.ops.size());
  const auto shows = [&](const ChunkInput& candidate) {
    const auto found = judge(candidate);
    return found && found->place == finding->place;
  };
  RemoveNeedless(&input.ops, [&](const std::vector<Chunk>& ops) -> std::optional<size_t> {
    return shows({input.head, ops}) ? std::optional(ops.size()) : std::nullopt;
  });
  if (shows({input.head, {}})) input.ops.clear();
  for (size_t i = 0; i < input.ops.size(); ++i) {
    RemoveNeedless(&input.ops[i], [&](const Chunk& op) -> std::optional<size_t> {
      ChunkInput candidate = input;
      candidate.ops[i] = op;
      return shows(candidate) ? std::optional(op.size()) : std::nullopt;
    });
  }
  return input;
}

}  // namespace lockstep::fuzz
