// Conversations as a model was trained on them: the common chat templates by name.
//
// A template gives parts, and says which of them are control tokens: what a user types is never
// taken for one, whatever it looks like.
#ifndef LOCKSTEP_ENGINE_CHAT_H_
#define LOCKSTEP_ENGINE_CHAT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "engine/tokenizer.h"

namespace lockstep {

enum class ChatRole : uint8_t { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string text;
};

struct ChatPart {
  bool control = false;  // a control token by its text, and not text to be encoded
  std::string text;
  friend bool operator==(const ChatPart&, const ChatPart&) = default;
};

class ChatTemplate {
 public:
  // "chatml", "gemma", "granite", "llama2", "llama3", "mistral", "mistral-v3" or "phi3". Throws
  // Error naming these for another. "mistral" is the form of plain text, "mistral-v3" the one whose
  // [INST] is a control token.
  static ChatTemplate Named(std::string_view name);

  // The one that the file's tokenizer.chat_template is, by the control tokens that it writes, with
  // the system message that it has where none is given. Throws Error where there is none, or one
  // that is none of these.
  static ChatTemplate Of(const GgufFile& file);

  std::string_view name() const { return name_; }

  // The conversation without a BOS token, up to where the model's answer begins. REQUIRES: at most
  // one system message, the first; then user and assistant in turns, the user's last (LS_CHECK).
  std::vector<ChatPart> Render(std::span<const ChatMessage> messages) const;

  // The control token that ends an answer; empty: the model's EOS.
  std::string_view end() const;

 private:
  explicit ChatTemplate(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::string default_system_;
};

// Token ids of a rendered conversation, with the BOS token that the vocabulary asks for.
class ChatEncoder {
 public:
  // Borrows the tokenizer, which is the file's.
  ChatEncoder(const GgufFile& file, const Tokenizer& tokenizer);

  // The control token of that text; <s> and </s> are BOS and EOS, whatever these are called. Throws
  // Error when the vocabulary has none.
  int32_t ControlToken(std::string_view text) const;
  std::vector<int32_t> Encode(std::span<const ChatPart> parts) const;

 private:
  std::string path_;
  std::vector<std::string> tokens_;
  const Tokenizer& tokenizer_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_CHAT_H_
