"""Prompts for the requests of a record: texts that are equal where the tokens were equal.

A record has no tokens, but a hash for each piece of a prompt and of its answer, and equal hashes
stand for equal tokens up to there. A piece gets a character of its own. In the model each token of
an answer is the same character, so a later prompt that has an answer in it gets it, too.
"""

from collections.abc import Iterable, Mapping, Sequence

from kvproof.model.records.lines import Arrived
from kvproof.model.state import SAMPLED

FIRST_CHARACTER = 0x4E00
CHARACTERS = 20_000
"""The characters of pieces: those of a large alphabet, all of which can be printed."""


class Inexpressible(Exception):
    """The prompts cannot be written as texts. The message says why, in one line."""


def prompts(arrivals: Sequence[Arrived]) -> dict[str, str]:
    """A prompt for each request, by its name. Raises Inexpressible."""
    answers = _answers(arrivals)
    characters: dict[str, str] = {}
    texts: dict[str, str] = {}
    for each in arrivals:
        size, end = each.hashed_tokens or 1, each.prompt_tokens
        text = ""
        for index, piece in enumerate(each.hashes):
            if index * size >= end:
                break
            own = characters.setdefault(piece, _character(len(characters)))
            known = answers.get(piece, size)
            text += own * known + SAMPLED * (size - known)
        rest = max(end - len(text), 0)
        texts[each.request] = (text + _character(len(characters)) * rest)[:end]
        if rest:
            characters[f"the rest of {each.request}"] = ""
    _check_answers(arrivals, texts)
    return texts


def _character(number: int) -> str:
    if number >= CHARACTERS:
        raise Inexpressible(f"there are more than {CHARACTERS} different pieces of prompts")
    return chr(FIRST_CHARACTER + number)


def _answers(arrivals: Iterable[Arrived]) -> Mapping[str, int]:
    """For each piece that contains tokens of an answer, the number of tokens before them."""
    found: dict[str, int] = {}
    for each in arrivals:
        size = each.hashed_tokens or 1
        for index, piece in enumerate(each.hashes):
            known = max(each.prompt_tokens - index * size, 0)
            if known < size:
                found[piece] = min(found.get(piece, size), known)
    return found


def _check_answers(arrivals: Iterable[Arrived], texts: Mapping[str, str]) -> None:
    """Check that equal texts stand for equal tokens in the answers, too."""
    pieces: dict[str, str] = {}
    for each in arrivals:
        size = each.hashed_tokens or 1
        text = texts[each.request].ljust(len(each.hashes) * size, SAMPLED)
        for index, piece in enumerate(each.hashes):
            if pieces.setdefault(text[: (index + 1) * size], piece) != piece:
                raise Inexpressible("two requests with equal prompts got different answers")
