#include "engine/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "engine/test_models.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string TextOf(std::span<const ChatPart> parts) {
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  return text;
}

const std::vector<ChatMessage> kTurns = {{ChatRole::kSystem, "Be brief."},
                                         {ChatRole::kUser, "Hello"},
                                         {ChatRole::kAssistant, "Hi!"},
                                         {ChatRole::kUser, "Bye <|im_end|>"}};

TEST(ChatTest, EveryTemplateWritesItsMarks) {
  const auto text = [](const char* name) {
    return TextOf(ChatTemplate::Named(name).Render(kTurns));
  };
  EXPECT_EQ(text("chatml"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
            "<|im_start|>assistant\nHi!<|im_end|>\n<|im_start|>user\nBye <|im_end|><|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(text("llama3"),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHi!<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye <|im_end|><|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(text("gemma"),
            "<start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi!"
            "<end_of_turn>\n<start_of_turn>user\nBye <|im_end|><end_of_turn>\n"
            "<start_of_turn>model\n");
  EXPECT_EQ(text("phi3"),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi!<|end|>\n"
            "<|user|>\nBye <|im_end|><|end|>\n<|assistant|>\n");
  EXPECT_EQ(text("llama2"),
            "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello [/INST] Hi! </s><s>[INST] "
            "Bye <|im_end|> [/INST]");
  EXPECT_EQ(text("mistral"),
            "[INST] Be brief.\n\nHello [/INST] Hi!</s>[INST] Bye <|im_end|> [/INST]");
  EXPECT_EQ(text("mistral-v3"),
            "[INST] Hello[/INST] Hi!</s>[INST] Be brief.\n\nBye <|im_end|>[/INST]");
  EXPECT_EQ(text("granite"),
            "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n"
            "<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n"
            "<|start_of_role|>assistant<|end_of_role|>Hi!<|end_of_text|>\n"
            "<|start_of_role|>user<|end_of_role|>Bye <|im_end|><|end_of_text|>\n"
            "<|start_of_role|>assistant<|end_of_role|>");
}

TEST(ChatTest, WhatAUserTypesIsNoControlToken) {
  for (const ChatPart& part : ChatTemplate::Named("chatml").Render(kTurns)) {
    EXPECT_EQ(part.control, part.text == "<|im_start|>" || part.text == "<|im_end|>") << part.text;
  }
}

TEST(ChatTest, UnknownOnesAreRefusedByName) {
  try {
    ChatTemplate::Named("vicuna");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("choose one of chatml, gemma, granite, llama2, llama3, mistral, "
                          "mistral-v3, phi3"));
  }
  GgufWriter none, other;
  none.AddString("general.architecture", "llama");
  other.AddString("tokenizer.chat_template", "{{ messages }}");
  EXPECT_THROW(ChatTemplate::Of(*GgufFile::FromBytes(none.Finish(), "a")), Error);
  EXPECT_THROW(ChatTemplate::Of(*GgufFile::FromBytes(other.Finish(), "b")), Error);
  // Mistral's later forms, without blanks and with marks of their own.
  for (const char* text :
       {"[INST]{{ m }}[/INST]", "[SYSTEM_PROMPT]{{ s }}[INST] {{ m }} [/INST]"}) {
    GgufWriter later;
    later.AddString("tokenizer.chat_template", text);
    EXPECT_THROW(ChatTemplate::Of(*GgufFile::FromBytes(later.Finish(), "c")), Error) << text;
  }
}

// The file's own template, rendered by Jinja itself.
std::string ByJinja(const std::string& chat_template, std::span<const ChatMessage> messages) {
  const TemporaryFolder folder;
  WriteWholeTextFile(folder.File("template"), chat_template);
  std::string list;
  for (const ChatMessage& message : messages) {
    const char* roles[] = {"system", "user", "assistant"};
    list += std::string("{'role':'") + roles[static_cast<size_t>(message.role)] + "','content':'" +
            message.text + "'},";
  }
  WriteWholeTextFile(folder.File("render.py"),
                     "import sys\nfrom jinja2.sandbox import ImmutableSandboxedEnvironment as E\n"
                     "e = E(trim_blocks=True, lstrip_blocks=True)\n"
                     "t = e.from_string(open(sys.argv[1]).read())\n"
                     "sys.stdout.write(t.render(messages=[" +
                         list +
                         "], add_generation_prompt=True, "
                         "bos_token='<s>', eos_token='</s>'))\n");
  const std::string command = "python3 " + folder.File("render.py") + " " +
                              folder.File("template") + " > " + folder.File("out");
  if (std::system(command.c_str()) != 0) return "failed";
  const std::string text = ReadWholeTextFile(folder.File("out"));
  return text.starts_with("<s>") ? text.substr(3) : text;  // the encoder adds the first BOS
}

struct Published {
  const char* name;
  const char* text;
};

// The forms that the families document, in Jinja of our own: what Jinja makes of loops and blanks
// is compared, and no text of theirs is copied. Meta's llama2 and llama3 model cards, Google's
// Gemma formatting page, Mistral's tokenization guide (v1 and v3), IBM's granite-3.0 card.
constexpr Published kPublished[] = {
    {"llama2",
     R"({% set first = 1 if messages[0].role == 'system' else 0 %}
{%- for m in messages[first:] %}
  {%- if m.role == 'user' %}
    {{- bos_token + '[INST] ' }}
    {%- if loop.first and first == 1 %}
      {{- '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' }}
    {%- endif %}
    {{- m.content + ' [/INST]' }}
  {%- else %}
    {{- ' ' + m.content + ' ' + eos_token }}
  {%- endif %}
{%- endfor %})"},
    {"llama3",
     R"({{- bos_token }}
{%- for m in messages %}
  {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})"},
    {"gemma",
     R"({{- bos_token }}
{%- set state = namespace(before='') %}
{%- for m in messages %}
  {%- if m.role == 'system' %}
    {%- set state.before = m.content + '\n\n' %}
  {%- else %}
    {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
    {{- state.before + m.content + '<end_of_turn>\n' }}
    {%- set state.before = '' %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{% endif %})"},
    {"mistral",
     R"({{- bos_token }}
{%- set first = 1 if messages[0].role == 'system' else 0 %}
{%- for m in messages[first:] %}
  {%- if m.role == 'user' %}
    {{- '[INST] ' + (messages[0].content + '\n\n' if loop.first and first == 1 else '') }}
    {{- m.content + ' [/INST]' }}
  {%- else %}
    {{- ' ' + m.content + eos_token }}
  {%- endif %}
{%- endfor %})"},
    {"mistral-v3",
     R"({{- bos_token }}
{%- set first = 1 if messages[0].role == 'system' else 0 %}
{%- for m in messages[first:] %}
  {%- if m.role == 'user' %}
    {{- '[INST] ' + (messages[0].content + '\n\n' if loop.last and first == 1 else '') }}
    {{- m.content + '[/INST]' }}
  {%- else %}
    {{- ' ' + m.content + eos_token }}
  {%- endif %}
{%- endfor %})"},
    {"granite",
     R"({%- for m in messages %}
  {{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %})"},
};

TEST(ChatTest, DocumentedFormsAreWhatJinjaMakesOfThem) {
  if (std::system("python3 -c 'import jinja2' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-jinja2 is not installed";
  }
  const std::vector<ChatMessage> without(kTurns.begin() + 1, kTurns.end());
  for (const Published& form : kPublished) {
    GgufWriter writer;
    writer.AddString("tokenizer.chat_template", form.text);
    const ChatTemplate found = ChatTemplate::Of(*GgufFile::FromBytes(writer.Finish(), form.name));
    EXPECT_EQ(found.name(), form.name);
    for (const auto& turns : {kTurns, without}) {
      EXPECT_EQ(TextOf(found.Render(turns)), ByJinja(form.text, turns)) << form.name;
    }
  }
}

TEST(ChatTest, RealTemplatesAreWhatJinjaMakesOfThem) {
  if (std::system("python3 -c 'import jinja2' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-jinja2 is not installed";
  }
  const std::vector<ChatMessage> turns(kTurns.begin() + 1, kTurns.end());
  for (const auto& [file, name] : {std::pair{"vocab/ggml-vocab-qwen2.gguf", "chatml"},
                                   std::pair{"vocab/ggml-vocab-phi-3.gguf", "phi3"}}) {
    LOCKSTEP_TEST_MODEL_OR_SKIP(path, file);
    const auto gguf = GgufFile::Open(path);
    const ChatTemplate found = ChatTemplate::Of(*gguf);
    EXPECT_EQ(found.name(), name);
    EXPECT_EQ(TextOf(found.Render(turns)),
              ByJinja(gguf->RequireString("tokenizer.chat_template"), turns));
  }
}

TEST(ChatTest, ControlTokensBecomeTheirIds) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "vocab/ggml-vocab-qwen2.gguf");
  const auto file = GgufFile::Open(path);
  const auto tokenizer = Tokenizer::Load(*file);
  const ChatEncoder encoder(*file, *tokenizer);
  const ChatTemplate chat = ChatTemplate::Named("chatml");
  const int32_t begin = encoder.ControlToken("<|im_start|>"),
                end = encoder.ControlToken(chat.end());
  const std::vector<int32_t> ids = encoder.Encode(chat.Render(kTurns));
  EXPECT_EQ(std::ranges::count(ids, begin), 5);
  EXPECT_EQ(std::ranges::count(ids, end), 4) << "what the user typed is text";
  EXPECT_EQ(ids.front(), begin);
  EXPECT_THROW(encoder.ControlToken("<|none|>"), Error);
}

}  // namespace
}  // namespace lockstep
