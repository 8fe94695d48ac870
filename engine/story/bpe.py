"""Byte-level BPE: Sennrich et al., https://arxiv.org/abs/1508.07909, over the pre-tokens of GPT-2's
encoder.py. For ASCII texts, which the corpus is."""
import re
from collections import Counter

PATTERN = re.compile(r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
END = "<|endoftext|>"  # begins and ends every story


def byte_alphabet():
    """The character that each byte is written as in a vocabulary, after encoder.py."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in alphabet]
    alphabet.update({byte: chr(0x100 + i) for i, byte in enumerate(hidden)})
    return [alphabet[byte] for byte in range(256)]


def merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


class Bpe:
    """Tokens are the end, the bytes, and what each merge gives, in this order."""

    def __init__(self, merges):
        self.merges = merges
        self.tokens = [END, *byte_alphabet(), *(left + right for left, right in merges)]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {pair: i for i, pair in enumerate(merges)}
        self.known = {}

    def encode_word(self, word):
        alphabet = byte_alphabet()
        symbols = tuple(alphabet[byte] for byte in word.encode())
        while len(symbols) > 1:
            pair = min(zip(symbols, symbols[1:]),
                       key=lambda p: self.ranks.get(p, len(self.ranks)))
            if pair not in self.ranks:
                break
            symbols = merge(symbols, pair)
        return [self.ids[symbol] for symbol in symbols]

    def encode(self, text):
        ids = []
        for word in PATTERN.findall(text):
            if word not in self.known:
                self.known[word] = self.encode_word(word)
            ids += self.known[word]
        return ids

    def decode(self, ids):
        back = {shown: byte for byte, shown in enumerate(byte_alphabet())}
        shown = "".join(self.tokens[i] for i in ids if i != 0)
        return bytes(back[c] for c in shown).decode(errors="replace")


def train(texts, vocab_size):
    """The most frequent pair is merged next; of several the first in the order of code points."""
    alphabet = byte_alphabet()
    words = Counter(word for text in texts for word in PATTERN.findall(text))
    split = {word: tuple(alphabet[byte] for byte in word.encode()) for word in words}
    merges = []
    while 1 + 256 + len(merges) < vocab_size:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(split[word], split[word][1:]):
                pairs[pair] += count
        if not pairs:
            raise ValueError(f"the corpus has no pair left after {len(merges)} merges")
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        split = {word: merge(symbols, best) for word, symbols in split.items()}
    # Two merges may give one token; ids have to be unique.
    if len({left + right for left, right in merges}) != len(merges):
        raise ValueError("two merges give the same token")
    return Bpe(merges)
