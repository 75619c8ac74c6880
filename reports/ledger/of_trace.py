"""This module makes the block ledger of a trace: one HTML file that needs no network and no server.

The page has the events with their changes of the state, as the file has them. Its program makes the
state after any event of them, and shows a lane for each request and each block. A state is flat
(see `model.traces.state_diff`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import describe
from kvproof.model.faults.registry import FAULTS
from kvproof.model.files.reading import read_text
from kvproof.model.finding import Finding
from kvproof.model.known_finding import KnownFinding
from kvproof.model.state import initial
from kvproof.model.traces.state_diff import flat
from kvproof.model.traces.trace import Trace
from kvproof.reports.terminal import replay_line
from kvproof.reports.trace.about import Sign, TraceFocus, first_sign, transfers
from kvproof.reports.trace.engines import group_text, prompts
from kvproof.reports.trace.functions import at_fault, functions
from kvproof.reports.trace.hang import hang_of
from kvproof.reports.trace.in_words import in_words
from kvproof.strategies.waits import ROOTS, Wait


def of_trace(
    trace: Trace, path: Path | None = None, known: KnownFinding | None = None
) -> dict[str, Any]:
    """Return the data of a trace: all that the page shows. `path` is its file, which is named in
    the command that replays it, and `known` the known finding of vLLM that it shows."""
    return {
        "title": _title(trace),
        "findings": [_finding(trace.finding, len(trace.events))] if trace.finding else [],
        "replay": replay_line(trace, path) if path else "",
        "notes": [line.text for line in prompts(trace.cluster)],
        "engines": [_engine(engine) for engine in trace.cluster.engines],
        "transfers": _transfers(trace.cluster),
        "hang": _hang(trace),
        "at_fault": at_fault(trace.faults, known),
        "initial": flat(initial(trace.cluster)),
        "steps": _steps(trace),
    }


def _finding(finding: Finding, step: int) -> dict[str, Any]:
    """A finding, and the number of its step on the page, from 1."""
    known = CHECKS.get(finding.invariant)
    return {
        "name": finding.invariant,
        "severity": known.severity.words if known and known.severity else "",
        "must": f"It must be true that {known.name} ({known.origin})." if known else "",
        "reasons": finding.sentences,
        "step": step,
        "engine": finding.about.engine,
        "request": finding.about.request,
        "block": finding.about.block,
    }


def _hang(trace: Trace) -> dict[str, Any] | None:
    """Why a run does not go on: the step on the page from which the steps repeat without end (from
    1; None: no step repeats), and who waits for what. `printed`: the reasons of the finding have
    all this."""
    hang = hang_of(trace)
    if hang is None:
        return None
    return {
        "begins": hang.begins,
        "waits": [_wait(wait) for wait in hang.waits],
        "printed": hang.printed,
    }


def _wait(wait: Wait) -> dict[str, Any]:
    """What a request waits for: the facts as a sentence, and a word for a cell of the page. `on` is
    the request that it waits for, as its engine and its name, or nothing. `root` says whether a
    scheduler refuses it, and not another request or engine."""
    return {
        "engine": wait.engine,
        "request": wait.request,
        "words": wait.sentence,
        "lack": wait.lack,
        "root": wait.lack in ROOTS,
        "on": wait.on if all(wait.on) else (),
    }


def _engine(engine: EngineConfig) -> dict[str, Any]:
    """An engine: the number of its blocks, of each cache group the text, the block size in tokens
    and the kind, and its role (empty: an engine alone). A block of it is `split` kernel blocks."""
    return {
        "name": engine.name,
        "blocks": engine.num_blocks,
        "groups": [group_text(group) for group in engine.groups],
        "sizes": [group.block_size for group in engine.groups],
        "kinds": [group.kind for group in engine.groups],
        "role": engine.role if engine.role != "both" else "",
        "split": engine.physical_per_logical,
    }


def _transfers(cluster: Cluster) -> dict[str, Any]:
    """Who sends and who receives in each transfer: the engine, and its request."""
    return {
        name: {
            "sender": {"engine": sender[0], "request": sender[1]},
            "receiver": {"engine": receiver[0], "request": receiver[1]},
        }
        for name, (sender, receiver) in transfers(cluster)
    }


def _title(trace: Trace) -> str:
    where = trace.machine + (f" (vLLM {trace.vllm})" if trace.vllm else "")
    faults = "".join(f". Fault {n}: {FAULTS[n].mistake}" for n in trace.faults if n in FAULTS)
    return f"{len(trace.events)} events on {where}, cluster {trace.cluster.name}{faults}"


def _steps(trace: Trace) -> list[dict[str, Any]]:
    """Each event: its number, what happened, and the same in `words` for a reader who does not know
    the names of events; the functions of vLLM that do it, whether it matters to the finding, what
    is broken after it, and the change of the state (`changed` is None where it was not
    recorded)."""
    near, last = _near(trace), len(trace.events)
    sign = first_sign(trace)
    if sign is not None:
        near.add(sign.event)
    request = trace.finding.about.request if trace.finding else ""
    changes = trace.changes or [None] * last
    found = (trace.finding.invariant,) if trace.finding else ()
    return [
        {
            "label": str(number),
            "text": describe(event),
            "words": in_words(event),
            "functions": functions(event, request),
            "near": number in near,
            "found": found if number == last else _names(sign, number),
            "changed": change.changed if change else None,
            "removed": change.removed if change else (),
        }
        for number, (event, change) in enumerate(zip(trace.events, changes, strict=True), 1)
    ]


def _names(sign: Sign | None, number: int) -> tuple[str, ...]:
    return (sign.finding.invariant,) if sign is not None and number == sign.event else ()


def _near(trace: Trace) -> set[int]:
    """Return the numbers of the events that concern the finding."""
    numbers = set(range(1, len(trace.events) + 1))
    if trace.changes is not None:
        about, states = TraceFocus(trace, False), trace.states()
        before = next(states)
        for number, (change, after) in enumerate(zip(trace.changes, states, strict=True), 1):
            if not any(entry.near for entry in about.entries(change, before, after)):
                numbers.discard(number)
            before = after
    last = {len(trace.events)} if trace.finding is not None else set()
    return numbers | last


PARTS = {
    "style": ("ledger.css",),
    "program": ("states.js", "cells.js", "lanes.js", "transfers.js", "ledger.js"),
}
"""The files of the page, by the place in the template that they take."""

FOLDER = Path(__file__).parent


def page(data: Mapping[str, Any]) -> str:
    """Return the page of these data as HTML."""
    html = _file("ledger.html")
    for place, names in PARTS.items():
        html = html.replace(f"/*{place}*/", "\n".join(map(_file, names)))
    encoded = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")  # in a script element
    return html.replace("/*data*/null", encoded)


def _file(name: str) -> str:
    return read_text(FOLDER / name, "part of the page", 1)
