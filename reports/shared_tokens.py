"""What the requests of a record share with earlier ones, and why it was not hit."""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from kvproof.model.hit_rows import KINDS, HitRow, sentence
from kvproof.model.records.record import Record


def rows_of_record(record: Record) -> tuple[HitRow, ...]:
    """The rows of all admissions in a record."""
    return tuple(each.row for happened in record.events for each in happened.event.shared)


def total(rows: Iterable[HitRow]) -> tuple[HitRow, ...]:
    """The rows of many requests, in which rows of one kind for one reason are one row: what nothing
    explains first, and the reasons last."""
    tokens: Counter[HitRow] = Counter()
    for row in rows:
        tokens[replace(row, tokens=0)] += row.tokens
    found = (replace(row, tokens=count) for row, count in tokens.items() if count)
    return tuple(sorted(found, key=lambda row: (KINDS.index(row.kind), -row.tokens, row.why)))


def lines(rows: Iterable[HitRow]) -> tuple[str, ...]:
    """The rows as a sentence for people; no line where no tokens are shared."""
    tokens: Counter[str] = Counter()
    for row in rows:
        tokens[row.label] += row.tokens
    told = sentence(tokens)
    return (f"Prefix cache: {told}.",) if told else ()
