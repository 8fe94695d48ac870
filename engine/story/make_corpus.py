"""Writes the corpus of the story model: short stories from a small grammar, one a line.

    make_corpus.py SEED COUNT FILE

Prints the seed and the SHA-256 of what it wrote. No two stories are the same. Integers alone are
random, from SplitMix64, so that the file is the same everywhere.
"""
import hashlib
import re
import sys

import plots
import words

MASK = (1 << 64) - 1


class Random:
    """SplitMix64: https://doi.org/10.1145/2660193.2660195."""

    def __init__(self, seed):
        self.state = seed & MASK

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) * n) >> 64

    def pick(self, items):
        return items[self.below(len(items))]

    def some(self, items, count):
        """`count` different ones, in the order in which they were drawn."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(count)]


def capital(text):
    return text[0].upper() + text[1:]


def expand(random, text, slots):
    """Takes one of each [a|b], which do not nest, then fills {slots}."""
    out = []
    while True:
        head, bracket, rest = text.partition("[")
        out.append(head)
        if not bracket:
            break
        choice, _, text = rest.partition("]")
        out.append(random.pick(choice.split("|")))
    return "".join(out).format_map(slots)


def characters(random):
    """Three of different names and kinds: slots of names, kinds and pronouns."""
    slots = {}
    kinds = random.some(words.ANIMALS, 3)
    # One in three stories is about a child.
    child = random.below(3) == 0
    girls, boys = random.some(words.GIRLS, 3), random.some(words.BOYS, 3)
    for i, letter in enumerate("abc"):
        girl = random.below(2) == 0
        slots[letter] = girls[i] if girl else boys[i]
        slots["k" + letter] = kinds[i]
        if i == 0 and child:
            slots["ka"] = "girl" if girl else "boy"
        prefix = "" if letter == "a" else letter
        he, him, his = ("she", "her", "her") if girl else ("he", "him", "his")
        slots.update({prefix + "he": he, prefix + "him": him, prefix + "his": his,
                      prefix + "He": capital(he), prefix + "His": capital(his)})
    return slots


def fill_slots(random):
    slots = characters(random)
    for name, items in (("size", words.SIZES), ("trait", words.TRAITS), ("color", words.COLORS),
                        ("home", words.HOMES), ("time", words.TIMES), ("helper", words.HELPERS),
                        ("feast", words.FEASTS), ("called", ["named", "called"]),
                        ("bag", ["bag", "sack", "basket"])):
        slots[name] = random.pick(items)
    slots["Time"] = capital(slots["time"])
    slots["Night"] = capital(random.pick(words.NIGHTS))
    slots["home2"] = re.sub(r"\b(a|an)\b", "the", slots["home"])
    slots["Home2"] = random.pick(["At home", "Home again,", "Back home"])
    for i, (before, spot) in enumerate(random.some(words.SPOTS, 3), start=1):
        slots.update({f"p{i}": before, f"s{i}": spot, f"p{i}c": capital(before)})
    slots["thing"], slots["use"], slots["missed"] = random.pick(words.THINGS)
    slots.update(zip(("t1", "t2", "t3"), random.some([t[0] for t in words.THINGS], 3)))
    slots["dish"], slots["stuff"], slots["source"] = random.pick(words.DISHES)
    uncounted = slots["dish"] in ("bread", "soup", "jam", "porridge")
    slots["dish1"] = slots["dish"] if uncounted else "a " + slots["dish"]
    slots["was"] = "were" if slots["stuff"].endswith("s") else "was"
    slots["fear"], slots["help"], slots["why"] = random.pick(words.FEARS)
    slots["part"], slots["how"], slots["tool"] = random.pick(words.DAMAGES)
    slots["tool0"] = slots["tool"].partition(" ")[2]
    slots["sound"], slots["maker"], slots["deed"] = random.pick(words.SOUNDS)
    slots["plant"], slots["size2"] = random.pick(words.PLANTS)
    slots["goal"], slots["sight"] = random.pick(words.GOALS)
    slots["need"], slots["gift"] = random.pick(words.NEEDS)
    slots["food"], slots["food0"] = random.pick(words.FOODS)
    slots["r1"], slots["r2"] = random.some(words.ROADS, 2)
    return slots


PLOTS = [("LOST", plots.OPEN_ONE), ("COOK", plots.OPEN_TWO), ("FEAR", plots.OPEN_ONE),
         ("MEND", plots.OPEN_TWO), ("SOUND", plots.OPEN_ONE), ("PLANT", plots.OPEN_ONE),
         ("JOURNEY", plots.OPEN_TWO), ("TRADE", plots.OPEN_ONE)]


def story(random):
    slots = fill_slots(random)
    plot, openings = random.pick(PLOTS)
    text = " ".join(expand(random, part, slots)
                    for part in [random.pick(openings), *getattr(plots, plot)])
    text = re.sub(r" +", " ", text).strip()
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


def stories(seed, count):
    random = Random(seed)
    seen = set()
    while len(seen) < count:
        text = story(random)
        if text not in seen:
            seen.add(text)
            yield text


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    print(f"seed {seed}, {count} stories")
    digest = hashlib.sha256()
    with open(sys.argv[3], "w", encoding="ascii", newline="\n") as out:
        for text in stories(seed, count):
            out.write(text + "\n")
            digest.update(text.encode() + b"\n")
    print(f"sha256 {digest.hexdigest()}")


if __name__ == "__main__":
    main()
