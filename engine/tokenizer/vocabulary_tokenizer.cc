#include "engine/tokenizer/vocabulary_tokenizer.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "caches/error.h"
#include "engine/gguf/cursor.h"
#include "engine/tokenizer/merge.h"

namespace lockstep {

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary, bool add_bos_default)
    : vocabulary_(std::move(vocabulary)), user_tokens_(vocabulary_) {
  const auto resolve = [&](std::optional<bool> asked, bool otherwise, std::optional<int32_t> id,
                           std::string_view name) {
    if (asked.value_or(false) && !id) {
      throw Error(
          {fmt::format("{}: metadata key 'tokenizer.ggml.add_{}_token'", vocabulary_.source, name),
           fmt::format("is true, but there is no 'tokenizer.ggml.{}_token_id'", name), ""});
    }
    return asked.value_or(otherwise && id);
  };
  kinds_ = vocabulary_.kinds;
  bos_ = vocabulary_.bos;
  eos_ = vocabulary_.eos;
  add_bos_ = resolve(vocabulary_.add_bos, add_bos_default, bos_, "bos");
  add_eos_ = resolve(vocabulary_.add_eos, false, eos_, "eos");
}

std::vector<int32_t> VocabularyTokenizer::Encode(std::string_view text) const {
  // Symbols count bytes in 32 bits, and the added space is one more.
  if (text.size() >= std::numeric_limits<uint32_t>::max() - 1) {
    throw Error({"text to encode", fmt::format("{} bytes are too many", text.size()),
                 "encode it in parts"});
  }
  std::vector<int32_t> ids;
  for (const UserTokens::Run& run : user_tokens_.Split(text)) {
    if (run.token != kNoToken) {
      ids.push_back(run.token);
    } else {
      EncodePlain(run.text, &ids);
    }
  }
  return ids;
}

std::string VocabularyTokenizer::Piece(int32_t id) const {
  switch (kind(id)) {
    case TokenKind::kControl:
      return "";
    case TokenKind::kUnknown:
      return "\xef\xbf\xbd";
    case TokenKind::kNormal:
    case TokenKind::kUserDefined:
    case TokenKind::kUnused:
    case TokenKind::kByte:
      break;
  }
  return vocabulary_.tokens[static_cast<size_t>(id)];
}

std::string VocabularyTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  bool at_space = adds_space();  // whether a space that begins the next piece is the encoder's
  for (const int32_t id : ids) {
    const std::string piece = Piece(id);
    const bool added = at_space && piece.starts_with(' ') && kind(id) != TokenKind::kUserDefined;
    text.append(piece, added ? 1 : 0);
    at_space =
        adds_space() && (kind(id) == TokenKind::kControl || kind(id) == TokenKind::kUserDefined);
  }
  return text;
}

int32_t VocabularyTokenizer::UnknownFor(std::string_view bytes) const {
  if (vocabulary_.unknown) return *vocabulary_.unknown;
  throw Error({fmt::format("{}: vocabulary", vocabulary_.source),
               fmt::format("no token stands for {}, and there is no unknown token", Quote(bytes)),
               ""});
}

}  // namespace lockstep
