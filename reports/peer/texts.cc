#include <array>

#include "reports/peer_check.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

constexpr std::array kTexts = {
    // Spaces: none, one, runs before and behind words, tabs, line ends of two systems.
    ""sv,
    " "sv,
    "  "sv,
    "   leading and trailing   "sv,
    "two  three   four    spaces"sv,
    "\t"sv,
    "\n"sv,
    "\r\n"sv,
    "\n\n\n\n"sv,
    " \n \t\n  x"sv,
    "line one\nline two\r\nline three\r"sv,
    "tab\tand  \t mixed \t"sv,
    // Spaces of other kinds: no-break, thin, ideographic, zero width, and a byte order mark.
    "a\u00a0b\u2009c\u3000d\u200be"sv,
    "\ufeffmark"sv,
    // The letter that "llama" vocabularies write for a space, and the ones of "gpt2".
    "\u2581a\u2581\u2581b"sv,
    "\u0120\u010a"sv,
    // Words, case, contractions of every kind.
    "Once upon a time, there was a little girl named Lily."sv,
    "I'll we've THEY'RE it's Don't 'tis 'S o'clock"sv,
    "I\u2019m you\u2019re"sv,
    "HTTPServerError camelCase snake_case kebab-case"sv,
    // Numbers: runs of every length, signs, other digits.
    "1 12 123 1234 12345 123456 1234567890"sv,
    "3.14159, -1e-9; 0x1F + 007 = \u00bd"sv,
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \u2460"sv,
    // Punctuation, code.
    "!?!?...---***###"sv,
    "for (int i = 0; i < n; ++i) { sum += a[i]; }  // done\n"sv,
    "\"quoted\" `code` {json: [1, 2]} <b>html</b> $x^2$"sv,
    "a,b;c:d/e\\f|g&h%i@j~k"sv,
    // What looks like a control token is text.
    "<s></s><unk><|endoftext|><|im_start|>user<|im_end|>[INST]<0x41>"sv,
    "<|bos|> <|filler_0|>"sv,
    // Accents, composed and not; letters without case; right to left.
    "\u00e9 e\u0301 \u00c5 A\u030a na\u00efve \u0160koda stra\u00dfe \u0130stanbul"sv,
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0393\u03b5\u03b9\u03ac"sv,
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627"sv,
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f \uc548\ub155"sv,
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947"sv,
    // Beyond the first plane: emoji, joined and coloured, flags, letters of mathematics.
    "\U0001f600\U0001f601"sv,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea"sv,
    "\U0001d4d0\U0001d4d1 \U00020bb7"sv,
    // Control characters, and the last code point.
    "bell\x07 escape\x1b[0m delete\x7f"sv,
    "\u0085\u2028\u2029"sv,
    "\U0010ffff\ufffd"sv,
    // The same again and again, where merges could go several ways.
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"sv,
    "ababababababababab hehehehehe thethethe"sv,
};

}  // namespace

std::span<const std::string_view> AwkwardTexts() { return kTexts; }

}  // namespace lockstep
