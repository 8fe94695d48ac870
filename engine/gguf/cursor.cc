#include "engine/gguf/cursor.h"

#include <fmt/format.h>

#include <utility>

#include "caches/error.h"

namespace lockstep {

std::string Quote(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string quoted = "'";
  for (char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f) {
      quoted += c;
    } else {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return quoted + (text.size() > kShown ? "...'" : "'");
}

uint64_t Cursor::ReadCount(uint64_t item_bytes, std::string_view field) {
  const uint64_t count = Read<uint64_t>(field);
  if (count > remaining() / item_bytes) {
    Fail(field,
         fmt::format("{} items of at least {} bytes each, but only {} bytes follow", count,
                     item_bytes, remaining()),
         "the file is truncated or damaged");
  }
  return count;
}

void Cursor::Fail(std::string_view field, std::string what, std::string remedy) const {
  std::string where(file_);
  if (!kind_.empty()) {
    where += named_ ? fmt::format(": {} {}", kind_, Quote(name_))
                    : fmt::format(": {} {}", kind_, index_);
  }
  if (!field.empty()) where += fmt::format(": {}", field);
  throw Error({std::move(where), std::move(what), std::move(remedy)});
}

void Cursor::FailShort(uint64_t size, std::string_view field) const {
  Fail(field,
       fmt::format("needs {} bytes at byte {}, but only {} remain", size, offset_, remaining()),
       "the file is truncated or damaged");
}

}  // namespace lockstep
