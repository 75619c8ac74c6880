"""Traces: fields and lines of good ones changed, bytes mutated, old schemas."""

import json
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.case import Case
from tests.fuzz.material import drawn, traces
from tests.fuzz.mutations import ODD_NUMBERS, ODD_TEXTS, as_json, bytes_changed, changed
from tests.fuzz.valid import trace_file

TRACES_MAX = 60
"""More good traces than there are; a number is taken modulo how many there are."""

Records = list[Any]


def _lines(records: Records) -> bytes:
    return b"".join(as_json(record) + b"\n" for record in records)


@st.composite
def changed_record(draw: st.DrawFn, data: bytes) -> bytes:
    """A trace with changed values in one to three records: most often those that are decoded into
    events, the header and the finding."""
    records = [json.loads(line) for line in data.splitlines()]
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        number = draw(st.sampled_from((0, 0, len(records) - 1, *range(len(records)))))
        record = records[number]
        if not isinstance(record, dict) or not record:
            continue
        inner = draw(st.sampled_from(("event", "config", "finding", "changed", "whole")))
        if isinstance(record.get(inner), dict) and record[inner]:
            made, _ = changed(draw, record[inner])
            records[number] = {**record, inner: made}
        else:
            records[number], _ = changed(draw, record)
    return _lines(records)


@st.composite
def changed_lines(draw: st.DrawFn, data: bytes) -> bytes:
    """A trace with lines that are removed, repeated, swapped, added or cut."""
    lines = data.splitlines(keepends=True)
    at = draw(st.integers(0, len(lines) - 1))
    to = draw(st.integers(0, len(lines) - 1))
    how = draw(st.sampled_from(("remove", "repeat", "swap", "add", "cut", "numbered", "ends")))
    if how == "remove":
        del lines[at]
    elif how == "repeat":
        lines.insert(to, lines[at])
    elif how == "swap":
        lines[at], lines[to] = lines[to], lines[at]
    elif how == "add":
        lines.insert(at, draw(st.sampled_from((b"\n", b"{}\n", b"[]\n", b"null\n", b"\r\n"))))
    elif how == "cut":
        del lines[at:]
    elif how == "ends":
        lines = [line.replace(b"\n", b"\r\n") for line in lines]
    else:
        del lines[at]
        return _renumbered(b"".join(lines))
    return b"".join(lines)


def _renumbered(data: bytes) -> bytes:
    """The same records with steps that count, so that the reader does not stop at the first."""
    records = [json.loads(line) for line in data.splitlines()]
    steps = [record for record in records if isinstance(record, dict) and "step" in record]
    for number, record in enumerate(steps, 1):
        record["step"] = number
    for record in records:
        if "end" in record:
            record["end"] = {"steps": len(steps)}
    return _lines(records)


@st.composite
def renamed(draw: st.DrawFn, data: bytes) -> bytes:
    """A trace in which one name or number is another one everywhere."""
    old = draw(st.sampled_from((b'"r0"', b'"P"', b'"E"', b'"D"', b'"full"', b": 2", b'"a')))
    odd = draw(st.sampled_from(ODD_TEXTS) | st.sampled_from(ODD_NUMBERS))
    new = as_json(odd)
    return data.replace(old, b": " + new if old == b": 2" else new)


def case(random: Random, key: str, number: int) -> Case:
    """A command that reads a trace."""
    good = traces()
    index = random.randrange(TRACES_MAX) % len(good)
    data = good[index]
    way = random.choice(
        ("record", "record", "record", "lines", "renamed", "bytes", "bytes", "good")
    )
    strategies = {"record": changed_record, "lines": changed_lines, "renamed": renamed}
    if way in strategies:
        data = drawn(strategies[way](data), f"{key}:{way}:{index}", number)
    elif way == "bytes":
        data = bytes_changed(random, data)
    argv = random.choice(
        (
            ("replay", "t.jsonl", "--machine", "model"),
            ("replay", "t.jsonl", "--machine", "model", "--json"),
            ("replay", "t.jsonl", "--machine", "model", "--json", "--fail-on", "bookkeeping"),
            ("replay", "t.jsonl"),
            ("report", "t.jsonl"),
            ("report", "t.jsonl", "--json"),
        )
    )
    return Case(argv, files={"t.jsonl": data}, invalid=trace_file(data))
