#!/usr/bin/env python3
"""Write pre_tokenizer_goldens.json: how Hugging Face's tokenizers cuts texts into pieces.

  python3 pre_tokenizer_goldens.py        needs the PyPI package tokenizers
"""

import json
import random
from pathlib import Path

from tokenizers import Regex
from tokenizers import pre_tokenizers as pre

LIKE_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KINDS = {
    "gpt-2": pre.ByteLevel(add_prefix_space=False, use_regex=True),
    "smollm": pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False, use_regex=True)]),
    "llama-bpe": pre.Split(Regex(LIKE_LLAMA3 % "{1,3}"), "isolated"),
    "qwen2": pre.Split(Regex(LIKE_LLAMA3 % ""), "isolated"),
}
ALPHABET = (
    list("aZzs'tTreVm'lLdD \n\r\t 019_.,!?-(){}<|>#") + ["'s", "'RE", "  ", "   ", "\r\n", "\n\n", " \n", "'ll", "n't"]
    + list("éßſKжДλΩאبकไ中日한あ") + list("²½Ⅷ٣०𝟙") + list("\u0301\u0308\u200d\ufe0f\u00ad\u180e\u200b\ufeff")
    + list("\u00a0\u2003\u2028\u3000\u0085\u000b\u000c\u001c\u001f") + list("😀👍🏽€∑→") + ["\U000116d0", "\U000323af", "\U00010d4a"]
)
FIXED = [
    "", " ", "  ", "a", " a", "  a", "   a b", "a  ", "a \n", "a\n\n\nb", "\r\n\r\n x", " \n \n a", "\n  a", "I'm you're HE'LL don't 'S 's' 'd",
    "x'ſ 'ſ", "12345 678 9", "a1b22c333d4444", "  12", " 12  34", "3.14", "v1.2.3-rc4", "foo_bar __init__ ---- ....", "!!\n\n?", "a.\nb", "$100 & €5",
    "def f(x):\n    return x+1\n", "naïve café", "日本語テキスト 123", "مرحبا ١٢٣", "👩🏾\u200d💻 ok", "e\u0301e\u0301 \u0301", "\ufeffBOM",
    "<|im_start|>user\nHi<|im_end|>", "http://a.b/c?d=e&f=1", "\t\tx\ty", "a\u00a0b\u3000c", "\u0301\u0301\u0301", "½ ² Ⅷ 𝟙𝟚", " " * 20, "\n" * 20, "_" * 20,
]


def pieces(kind, text):
    return [text[a:b] for _, (a, b) in KINDS[kind].pre_tokenize_str(text)]


def main():
    rng = random.Random(7)
    texts = FIXED + ["".join(rng.choices(ALPHABET, k=rng.randint(2, 24))) for _ in range(300)]
    cases = []
    for text in texts:
        case = {"text": text} | {kind: pieces(kind, text) for kind in KINDS}
        assert all("".join(case[kind]) == text for kind in KINDS)
        cases.append(case)
    path = Path(__file__).with_name("pre_tokenizer_goldens.json")
    path.write_text('{"cases": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]}\n", encoding="ascii")
    print(len(cases), "cases", path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
