"""How an error reads: two sentences on one line, what is wrong and what to use instead."""

import re

SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


def two_sentences(text: str) -> bool:
    """Whether this is one line of two sentences."""
    line = text.rstrip("\n")
    return "\n" not in line and line.endswith(".") and len(SENTENCE_END.findall(line)) == 2
