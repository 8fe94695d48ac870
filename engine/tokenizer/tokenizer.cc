#include "engine/tokenizer.h"

#include <fmt/format.h>

#include "caches/error.h"
#include "engine/gguf/cursor.h"
#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/sentencepiece.h"

namespace lockstep {

std::unique_ptr<const Tokenizer> Tokenizer::Load(const GgufFile& file,
                                                 const TokenizerOptions& options) {
  constexpr std::string_view kModel = "tokenizer.ggml.model";
  const std::string& model = file.RequireString(kModel);
  if (model == "llama") return LoadSentencePiece(file);
  if (model == "gpt2") return LoadByteLevel(file, options);
  throw Error({fmt::format("{}: metadata key {}", file.path(), Quote(kModel)),
               fmt::format("tokenizer {} is unknown", Quote(model)), "supported: 'llama', 'gpt2'"});
}

std::vector<int32_t> Tokenizer::EncodePrompt(std::string_view text) const {
  std::vector<int32_t> ids = Encode(text);
  if (add_bos_) ids.insert(ids.begin(), *bos_);
  if (add_eos_) ids.push_back(*eos_);
  return ids;
}

}  // namespace lockstep
