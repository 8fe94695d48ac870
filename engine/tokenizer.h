// Text to token ids and back, from the vocabulary inside a GGUF file.
//
//   tokenizer.ggml.model = "llama": SentencePiece-style BPE by score, with byte fallback.
//   tokenizer.ggml.model = "gpt2":  byte-level BPE by merge rank; tokenizer.ggml.pre chooses the
//                                   pre-tokenizer's pattern.
// Anything else is refused with the name of what is missing.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_H_
#define LOCKSTEP_ENGINE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace lockstep {

enum class TokenKind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct TokenizerOptions {
  // Replaces tokenizer.ggml.pre of a "gpt2" vocabulary. Old files have no such key, and a guess
  // would give other ids than the model was trained on: without this option they are refused.
  std::string pre_tokenizer;
};

// Safe to use from several threads at once.
class Tokenizer {
 public:
  // Throws Error when the vocabulary is missing, malformed or of an unsupported kind.
  static std::unique_ptr<const Tokenizer> Load(const GgufFile& file,
                                               const TokenizerOptions& options = {});
  virtual ~Tokenizer() = default;

  // Ids of `text` alone: no BOS or EOS, and text that looks like a control token is plain text.
  // User-defined tokens are found in it wherever they stand. Invalid UTF-8 is legal input: what
  // does not decode is encoded byte by byte. Never drops text: throws Error for a byte that the
  // vocabulary has no token for, unless it has an unknown token.
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;

  // Encode with BOS and EOS as the file's add_bos_token / add_eos_token ask.
  std::vector<int32_t> EncodePrompt(std::string_view text) const;

  // The bytes that one token stands for when it follows other text: a piece may be an incomplete
  // UTF-8 sequence. Control tokens give "", unknown ones U+FFFD. REQUIRES: 0 <= id < vocab_size
  // (std::out_of_range).
  virtual std::string Piece(int32_t id) const = 0;

  // Concatenated pieces, without the space that the encoder puts before a text: a "llama"
  // vocabulary has one at the start and after each control or user-defined token.
  //
  // Decode(Encode(text)) == text, except where the unknown token was needed, and that a "llama"
  // vocabulary knows U+2581 only as another space.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;

  int32_t vocab_size() const { return static_cast<int32_t>(kinds_.size()); }
  TokenKind kind(int32_t id) const { return kinds_.at(static_cast<size_t>(id)); }
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

 protected:
  std::vector<TokenKind> kinds_;
  std::optional<int32_t> bos_;
  std::optional<int32_t> eos_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

// Streaming text: holds back bytes until they form whole UTF-8 sequences. Bytes that can never
// become one come out as U+FFFD, one for each maximal subpart of an ill-formed sequence (The
// Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"). The text does not
// depend on how the bytes were cut into pushes.
class Utf8Stream {
 public:
  // What is decided by now. Holds back at most 3 bytes.
  std::string Push(std::string_view bytes);

  // The end: U+FFFD for a sequence that was cut short. The stream is then as new.
  std::string Flush();

 private:
  std::string pending_;
};

// Streaming text that ends before the first of some texts: holds back what may be the beginning of
// one.
class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What certainly stands before any stop. Once one was found, nothing.
  std::string Push(std::string_view text);
  bool stopped() const { return stopped_; }

  // The end: what was held back, and is no stop. The stream is then as new.
  std::string Flush();

 private:
  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_H_
