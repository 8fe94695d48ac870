// The templates, after the chat templates that the model families publish with their tokenizers.
#include "engine/chat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "caches/check.h"
#include "caches/error.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"chatml", "gemma",   "granite",    "llama2",
                                                    "llama3", "mistral", "mistral-v3", "phi3"};

std::string_view RoleName(ChatRole role) {
  constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};
  return kRoles.at(static_cast<size_t>(role));
}

class Renderer {
 public:
  void Control(std::string_view text) { parts_.push_back({true, std::string(text)}); }
  void Text(std::string_view text) {
    if (text.empty()) return;
    if (parts_.empty() || parts_.back().control) parts_.push_back({});
    parts_.back().text += text;
  }
  std::vector<ChatPart> Finish() { return std::move(parts_); }

  void ChatMl(std::span<const ChatMessage> messages) {
    for (const ChatMessage& message : messages) {
      Control("<|im_start|>");
      Text(fmt::format("{}\n{}", RoleName(message.role), message.text));
      Control("<|im_end|>");
      Text("\n");
    }
    Control("<|im_start|>");
    Text("assistant\n");
  }

  void Llama3(std::span<const ChatMessage> messages) {
    const auto header = [&](std::string_view role) {
      Control("<|start_header_id|>");
      Text(role);
      Control("<|end_header_id|>");
      Text("\n\n");
    };
    for (const ChatMessage& message : messages) {
      header(RoleName(message.role));
      Text(message.text);
      Control("<|eot_id|>");
    }
    header("assistant");
  }

  void Phi3(std::span<const ChatMessage> messages) {
    for (const ChatMessage& message : messages) {
      Control(fmt::format("<|{}|>", RoleName(message.role)));
      Text("\n" + message.text);
      Control("<|end|>");
      Text("\n");
    }
    Control("<|assistant|>");
    Text("\n");
  }

  // A system message is the beginning of the first user's.
  void Gemma(std::span<const ChatMessage> messages) {
    std::string before;
    for (const ChatMessage& message : messages) {
      if (message.role == ChatRole::kSystem) {
        before = message.text + "\n\n";
        continue;
      }
      Control("<start_of_turn>");
      const bool user = message.role == ChatRole::kUser;
      Text(fmt::format("{}\n{}{}", user ? "user" : "model", before, message.text));
      before.clear();
      Control("<end_of_turn>");
      Text("\n");
    }
    Control("<start_of_turn>");
    Text("model\n");
  }

  // The same, between marks of its own; answers end in EOS, and each turn begins with BOS.
  void Llama2(std::span<const ChatMessage> messages) {
    std::string before;
    bool first = true;
    for (const ChatMessage& message : messages) {
      switch (message.role) {
        case ChatRole::kSystem:
          before = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", message.text);
          break;
        case ChatRole::kUser:
          if (!first) Control("<s>");
          first = false;
          Text(fmt::format("[INST] {}{} [/INST]", before, message.text));
          before.clear();
          break;
        case ChatRole::kAssistant:
          Text(fmt::format(" {} ", message.text));
          Control("</s>");
          break;
      }
    }
  }

  void Granite(std::span<const ChatMessage> messages) {
    const auto role = [&](std::string_view name) {
      Control("<|start_of_role|>");
      Text(name);
      Control("<|end_of_role|>");
    };
    for (const ChatMessage& message : messages) {
      role(RoleName(message.role));
      Text(message.text);
      Control("<|end_of_text|>");
      Text("\n");
    }
    role("assistant");
  }

  // A system message is the beginning of the first user's. BOS is before the first turn alone.
  void Mistral(std::span<const ChatMessage> messages) {
    std::string before;
    for (const ChatMessage& message : messages) {
      switch (message.role) {
        case ChatRole::kSystem:
          before = message.text + "\n\n";
          break;
        case ChatRole::kUser:
          Text(fmt::format("[INST] {}{} [/INST]", before, message.text));
          before.clear();
          break;
        case ChatRole::kAssistant:
          Text(" " + message.text);
          Control("</s>");
          break;
      }
    }
  }

  // Here it is the beginning of the last one's.
  void MistralV3(std::span<const ChatMessage> messages) {
    std::string system;
    for (const ChatMessage& message : messages) {
      switch (message.role) {
        case ChatRole::kSystem:
          system = message.text + "\n\n";
          break;
        case ChatRole::kUser:
          Control("[INST]");
          Text(fmt::format(" {}{}", &message == &messages.back() ? system : "", message.text));
          Control("[/INST]");
          break;
        case ChatRole::kAssistant:
          Text(" " + message.text);
          Control("</s>");
          break;
      }
    }
  }

 private:
  std::vector<ChatPart> parts_;
};

void CheckTurns(std::span<const ChatMessage> messages) {
  ChatRole wanted = ChatRole::kUser;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i == 0 && messages[i].role == ChatRole::kSystem) continue;
    LS_CHECK(messages[i].role == wanted, "message {} is the {}'s", i, RoleName(messages[i].role));
    wanted = wanted == ChatRole::kUser ? ChatRole::kAssistant : ChatRole::kUser;
  }
  LS_CHECK(wanted == ChatRole::kAssistant, "the last message is not the user's");
}

// Mistral's forms, of which others than these two have other blanks and marks; empty: one of those.
std::string_view MistralNameOf(std::string_view text) {
  const auto has = [&](std::string_view mark) { return text.find(mark) != text.npos; };
  if (has("[SYSTEM_PROMPT]") || !has("[INST] ")) return {};
  return has(" [/INST]") ? "mistral" : "mistral-v3";
}

// What stands between two literals of a template, where that is plain text.
std::string Between(std::string_view text, std::string_view begin, std::string_view end) {
  const size_t at = text.find(begin);
  if (at == text.npos) return {};
  const std::string_view rest = text.substr(at + begin.size());
  const std::string_view found = rest.substr(0, rest.find(end));
  return found.size() == rest.size() || found.find_first_of("'{}\\") != found.npos
             ? std::string()
             : std::string(found);
}

}  // namespace

ChatTemplate ChatTemplate::Named(std::string_view name) {
  if (std::ranges::find(kNames, name) == kNames.end()) {
    throw Error({"chat template", fmt::format("there is none named '{}'", name),
                 fmt::format("choose one of {}", fmt::join(kNames, ", "))});
  }
  return ChatTemplate(std::string(name));
}

ChatTemplate ChatTemplate::Of(const GgufFile& file) {
  const std::string where = fmt::format("{}: metadata key 'tokenizer.chat_template'", file.path());
  const std::string remedy = fmt::format("name one with --template: {}", fmt::join(kNames, ", "));
  const auto text = file.FindString("tokenizer.chat_template");
  if (!text) throw Error({where, "it is missing", remedy});
  const std::pair<std::string_view, std::string_view> marks[] = {
      {"<|im_start|>", "chatml"},
      {"<|start_header_id|>", "llama3"},
      {"<start_of_turn>", "gemma"},
      {"<|end|>", "phi3"},
      {"<<SYS>>", "llama2"},
      {"<|start_of_role|>", "granite"},
      {"[INST]", MistralNameOf(*text)},
  };
  for (const auto& [mark, name] : marks) {
    if (name.empty() || text->find(mark) == text->npos) continue;
    ChatTemplate found = Named(name);
    if (name == "chatml") {
      // A line's end, or the escape for one.
      for (const std::string_view begin : {"<|im_start|>system\n", "<|im_start|>system\\n"}) {
        if (!found.default_system_.empty()) break;
        found.default_system_ = Between(*text, begin, "<|im_end|>");
      }
    }
    return found;
  }
  throw Error({where, "it is none of those known here", remedy});
}

std::vector<ChatPart> ChatTemplate::Render(std::span<const ChatMessage> messages) const {
  CheckTurns(messages);
  std::vector<ChatMessage> all(messages.begin(), messages.end());
  if (!default_system_.empty() && all.front().role != ChatRole::kSystem) {
    all.insert(all.begin(), {ChatRole::kSystem, default_system_});
  }
  Renderer renderer;
  if (name_ == "chatml") renderer.ChatMl(all);
  if (name_ == "gemma") renderer.Gemma(all);
  if (name_ == "granite") renderer.Granite(all);
  if (name_ == "llama2") renderer.Llama2(all);
  if (name_ == "llama3") renderer.Llama3(all);
  if (name_ == "mistral") renderer.Mistral(all);
  if (name_ == "mistral-v3") renderer.MistralV3(all);
  if (name_ == "phi3") renderer.Phi3(all);
  return renderer.Finish();
}

std::string_view ChatTemplate::end() const {
  if (name_ == "chatml") return "<|im_end|>";
  if (name_ == "gemma") return "<end_of_turn>";
  if (name_ == "granite") return "<|end_of_text|>";
  if (name_ == "llama3") return "<|eot_id|>";
  if (name_ == "phi3") return "<|end|>";
  return "";
}

ChatEncoder::ChatEncoder(const GgufFile& file, const Tokenizer& tokenizer)
    : path_(file.path()),
      tokens_(file.RequireStrings("tokenizer.ggml.tokens")),
      tokenizer_(tokenizer) {}

int32_t ChatEncoder::ControlToken(std::string_view text) const {
  // Vocabularies call these two differently.
  if (text == "<s>" && tokenizer_.bos()) return *tokenizer_.bos();
  if (text == "</s>" && tokenizer_.eos()) return *tokenizer_.eos();
  const auto found = std::ranges::find(tokens_, text);
  if (found != tokens_.end()) return static_cast<int32_t>(found - tokens_.begin());
  throw Error({path_,
               fmt::format("its vocabulary has no token '{}', which the template writes", text),
               "name another template with --template"});
}

std::vector<int32_t> ChatEncoder::Encode(std::span<const ChatPart> parts) const {
  std::vector<int32_t> ids;
  if (tokenizer_.add_bos() && tokenizer_.bos()) ids.push_back(*tokenizer_.bos());
  for (const ChatPart& part : parts) {
    if (part.control) {
      ids.push_back(ControlToken(part.text));
      continue;
    }
    const std::vector<int32_t> text = tokenizer_.Encode(part.text);
    ids.insert(ids.end(), text.begin(), text.end());
  }
  return ids;
}

}  // namespace lockstep
